//! Files: written, synced and read back by each backend.

use std::time::Duration;

use pipewright_disk::{
    AlignedBuf, AsyncFile, BackendKind, DiskFile, Done, Engine, EngineOptions, Operation,
    SharedEngine,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Scenario;
use super::commands::in_a_task;
use crate::scene::{Fault, Pass, Scene, Seen, expect};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("disk_uring", |_| engine(BackendKind::Uring, false)),
        Scenario::new("disk_aio", |_| engine(BackendKind::Aio, false)),
        Scenario::new("disk_threads", |_| engine(BackendKind::Threads, false)),
        Scenario::new("disk_caller", |_| engine(BackendKind::Caller, false)),
        Scenario::new("disk_auto", |_| {
            Ok(Box::new(|scene| engine(BackendKind::Auto, true)?(scene)))
        }),
        Scenario::new("disk_shared", |_| Ok(Box::new(|scene| shared()?(scene)))),
        Scenario::new("disk_task", |_| Ok(Box::new(|scene| task()?(scene)))),
    ]
}

/// One piece of the file.
const PIECE: usize = 16 << 10;

/// Returns bytes that differ from pass to pass.
fn bytes(scene: &Scene, piece: usize) -> Vec<u8> {
    let salt = scene.pass.get() as usize * 7 + piece * 13;
    (0..PIECE).map(|place| ((place + salt) % 251) as u8).collect()
}

fn open(scene: &Scene) -> Result<DiskFile, Fault> {
    let options = DiskFile::options().read(true).write(true).create(true);
    options.open(scene.path("data")).map_err(Fault::told)
}

fn filled(file: &DiskFile, bytes: &[u8]) -> Result<AlignedBuf, Fault> {
    let mut buffer = file.buffer(bytes.len()).map_err(Fault::told)?;
    buffer[..bytes.len()].copy_from_slice(bytes);
    Ok(buffer)
}

/// Takes a result. A failed sync is repeated: it must not succeed, because nobody knows what was lost.
fn done(done: Done, mut again: impl FnMut(Operation) -> Done) -> Result<AlignedBuf, Fault> {
    let is_sync = done.buffer.is_empty();
    match &done.result {
        Ok(_) => Ok(done.buffer),
        Err(error) => {
            let told = Fault::told(error);
            // Not the wait for it, after which it may have happened.
            let has_failed = is_sync && error.to_string().starts_with("cannot sync ");
            if has_failed && again(Operation::sync_all(&done.file)).result.is_ok() {
                return Err(Fault::Untrue(format!("synced after a failed sync: {told:?}")));
            }
            Err(told)
        }
    }
}

/// Makes an engine; each pass writes two pieces at once, syncs twice, and reads.
fn engine(backend: BackendKind, cached_first: bool) -> Result<Pass, Fault> {
    let options = EngineOptions {
        backend,
        cached_first,
        depth: 8,
        threads: Some(2),
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(options).map_err(Fault::told)?;
    Ok(Box::new(move |scene| {
        // What a pass before could not wait for.
        while engine.next().map_err(Fault::told)?.is_some() {}
        let file = open(scene)?;
        for piece in [0, 1] {
            let buffer = filled(&file, &bytes(scene, piece))?;
            let operation = Operation::write_all_at(&file, buffer, (piece * PIECE) as u64);
            engine
                .queue(operation)
                .map_err(|_| Fault::Untrue("no room in an empty engine".to_owned()))?;
        }
        let submitted = engine.submit();
        let mut told = submitted.err().map(Fault::told);
        let mut count = 0;
        for _ in 0..20 {
            match engine.next() {
                Ok(Some(one)) => {
                    count += 1;
                    told = told.or(one.result.err().map(Fault::told));
                }
                Ok(None) => break,
                // The operations are still there.
                Err(error) => told = Some(Fault::told(error)),
            }
        }
        expect("results of two writes", count, 2)?;
        told.map_or(Ok(()), Err)?;
        let synced = engine.sync_data(&file);
        done(synced, |operation| engine.run(operation))?;
        let synced = engine.sync_all(&file);
        done(synced, |operation| engine.run(operation))?;
        let buffer = file.buffer(2 * PIECE).map_err(Fault::told)?;
        let read = done(engine.read_exact_at(&file, buffer, 0), |operation| engine.run(operation))?;
        check(scene, &read)?;
        Ok(engine.backend().to_string())
    }))
}

/// Checks what was read, and what is in the file.
fn check(scene: &Scene, read: &[u8]) -> Result<(), Fault> {
    let wanted = [bytes(scene, 0), bytes(scene, 1)].concat();
    expect("the bytes that were read", read, &*wanted)?;
    expect("the bytes in the file", scene.bytes_of("data"), wanted)
}

fn shared() -> Result<Pass, Fault> {
    let options = EngineOptions { depth: 8, threads: Some(2), ..EngineOptions::default() };
    let engine = SharedEngine::new(options).map_err(Fault::told)?;
    Ok(Box::new(move |scene| {
        let file = open(scene)?;
        let again = |operation| engine.start(operation).wait();
        let mut writes = Vec::new();
        for piece in [0, 1] {
            let buffer = filled(&file, &bytes(scene, piece))?;
            writes.push(engine.write_all_at(&file, buffer, (piece * PIECE) as u64));
        }
        for write in writes {
            done(write.wait(), again)?;
        }
        done(engine.sync_all(&file).wait(), again)?;
        let buffer = file.buffer(2 * PIECE).map_err(Fault::told)?;
        let read = done(engine.read_exact_at(&file, buffer, 0).wait(), again)?;
        check(scene, &read)?;
        Ok(engine.backend().to_string())
    }))
}

fn task() -> Result<Pass, Fault> {
    let options = EngineOptions { depth: 8, threads: Some(2), ..EngineOptions::default() };
    let engine = SharedEngine::new(options).map_err(Fault::told)?;
    Ok(Box::new(move |scene| {
        let seen: Seen = in_a_task(async {
            let file = open(scene)?;
            let mut writer = AsyncFile::new(&engine, &file);
            for piece in [0, 1] {
                writer.write_all(&bytes(scene, piece)).await.map_err(Fault::told)?;
            }
            writer.flush().await.map_err(Fault::told)?;
            let mut read = Vec::new();
            let limit = Duration::from_secs(5);
            let mut reader = AsyncFile::new(&engine, &file);
            tokio::time::timeout(limit, reader.read_to_end(&mut read))
                .await
                .map_err(Fault::told)?
                .map_err(Fault::told)?;
            check(scene, &read)?;
            Ok(engine.backend().to_string())
        })?;
        seen
    }))
}
