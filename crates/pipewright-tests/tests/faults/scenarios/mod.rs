//! The scenarios: a small use of the product each, which checks every byte.

mod batches;
mod commands;
mod trees;

use std::time::Duration;

use pipewright::Command;
use pipewright_disk::{
    AlignedBuf, AsyncFile, BackendKind, DiskFile, Done, Engine, EngineOptions, Operation,
    SharedEngine,
};
use pipewright_ipc::{Channel, Options, Pool, PoolOptions, SharedMemory, worker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::scene::{Fault, Pass, Scene, Seen, expect};
use commands::in_a_task;

/// A small use of the product.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Opens what the passes use.
    pub(crate) open: fn(&Scene) -> Result<Pass, Fault>,
    /// True if a pass without a failure comes before.
    pub(crate) warm: bool,
    /// Those whose calls fail.
    pub(crate) roles: &'static [&'static str],
    /// The time after which it hangs.
    pub(crate) limit: Duration,
    /// The number of times that its cases count in the short run.
    pub(crate) weight: usize,
    /// Failures that it leaves out: the start of "caller name object", and the errors.
    pub(crate) left_out: &'static [(&'static str, &'static [i32])],
}

const LIBRARY: &[&str] = &["host", "child", "supervisor", "worker"];
const TOOL: &[&str] = &["tool", "tool-child", "supervisor"];
const PYTHON: &[&str] = &["python", "python-child", "supervisor"];

impl Scenario {
    const fn new(name: &'static str, open: fn(&Scene) -> Result<Pass, Fault>) -> Scenario {
        Scenario {
            name,
            open,
            warm: false,
            roles: LIBRARY,
            limit: Duration::from_secs(10),
            weight: 4,
            left_out: &[],
        }
    }

    const fn warm(mut self) -> Scenario {
        self.warm = true;
        self
    }

    /// Leaves out errors that mean something else there than what they say, or that the documents except.
    const fn without(mut self, left_out: &'static [(&'static str, &'static [i32])]) -> Scenario {
        self.left_out = left_out;
        self
    }

    /// Leaves out the calls of workers, whose own errors end the conversation.
    const fn without_workers(mut self) -> Scenario {
        self.roles = &["host", "child", "supervisor"];
        self
    }

    const fn of(mut self, roles: &'static [&'static str]) -> Scenario {
        self.roles = roles;
        self.limit = Duration::from_secs(20);
        self.weight = 1;
        self
    }
}

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(commands::all());
    all.extend(trees::all());
    all.extend(disk_scenarios());
    all.extend(worker_scenarios());
    all.extend(batches::all());
    all
}

/// Makes a scenario of a pass that needs nothing to be open.
macro_rules! passes {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::scenarios::Scenario::new(stringify!($name), |_| Ok(Box::new($name)))),*]
    };
}

pub(crate) use passes;

fn disk_scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("disk_uring", |_| engine(BackendKind::IoUring, false)),
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

fn worker_scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pool", |_| pool(SharedMemory::Auto)),
        Scenario::new("pool_again", |_| pool(SharedMemory::Auto)).warm(),
        Scenario::new("pool_by_socket", |_| pool(SharedMemory::Off)),
        Scenario::new("channel", |_| Ok(Box::new(|scene| channel(SharedMemory::Auto)(scene)))),
        Scenario::new("channel_by_socket", |_| {
            Ok(Box::new(|scene| channel(SharedMemory::Off)(scene)))
        }),
        Scenario::new("channel_again", open_channel).warm().without_workers(),
    ]
}

const KIND: &str = "PIPEWRIGHT_FAULTS_WORKER";

/// Runs this process as a worker, if it was started as one.
pub(crate) fn serve() -> bool {
    if !worker::is_worker() {
        return false;
    }
    // Its errors are seen at the other end.
    if std::env::var_os(KIND).is_some_and(|kind| kind == "channel") {
        if let Ok(mut channel) = worker::channel::<pipewright_ipc::Raw, pipewright_ipc::Raw>(
            &options(SharedMemory::Auto),
        ) {
            while let Ok(bytes) = channel.recv().and_then(|message| message.bytes()) {
                if channel.send_bytes(&bytes).is_err() {
                    break;
                }
            }
        }
    } else {
        let _ = worker::serve(&options(SharedMemory::Auto), |question, answer| {
            answer.extend(question.iter().rev());
        });
    }
    true
}

fn options(shared_memory: SharedMemory) -> Options {
    let timeout = Some(Duration::from_secs(4));
    Options { ring_bytes: 64 << 10, shared_memory, timeout, ..Options::default() }
}

fn command(kind: &str) -> Result<Command, Fault> {
    let own = std::env::current_exe().map_err(Fault::told)?;
    Ok(Command::new(own).env(KIND, kind).owned())
}

/// Makes a pool; each pass is a short call and a long one.
fn pool(shared_memory: SharedMemory) -> Result<Pass, Fault> {
    let options = PoolOptions {
        max_workers: 1,
        call_timeout: Some(Duration::from_secs(4)),
        channel: options(shared_memory),
        backoff: Duration::from_millis(1),
        ..PoolOptions::default()
    };
    let pool = Pool::new(command("pool")?, options).map_err(Fault::told)?;
    Ok(Box::new(move |_| {
        for length in [10, 100_000] {
            let question: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let answer = pool.call(question.clone()).map_err(Fault::told)?.into_bytes();
            let wanted: Vec<u8> = question.into_iter().rev().collect();
            expect("bytes of an answer", answer.len(), wanted.len())?;
            expect("the answer", answer, wanted)?;
        }
        Ok(String::new())
    }))
}

/// Returns a pass that starts a worker, speaks with it and ends it.
fn channel(shared_memory: SharedMemory) -> impl Fn(&Scene) -> crate::scene::Seen {
    move |_| {
        let channel = Channel::start(&mut command("channel")?, &options(shared_memory));
        let mut channel: Channel = channel.map_err(Fault::told)?;
        let seen = speak(&mut channel)?;
        let status = channel.close().map_err(Fault::told)?;
        expect("code", status.and_then(|status| status.code()), Some(0))?;
        Ok(seen)
    }
}

fn open_channel(_: &Scene) -> Result<Pass, Fault> {
    let start = || {
        let started = Channel::start(&mut command("channel")?, &options(SharedMemory::Auto));
        started.map_err(Fault::told)
    };
    let mut channel: Option<Channel> = Some(start()?);
    Ok(Box::new(move |_| {
        let mut open = match channel.take() {
            Some(open) => open,
            None => start()?,
        };
        // After an error the conversation is over.
        let seen = speak(&mut open)?;
        channel = Some(open);
        Ok(seen)
    }))
}

fn speak(channel: &mut Channel) -> crate::scene::Seen {
    for length in [10, 200_000] {
        let question: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
        channel.send_bytes(&question).map_err(Fault::told)?;
        let answer = channel.recv().and_then(|message| message.bytes()).map_err(Fault::told)?;
        expect("bytes of an answer", answer.len(), question.len())?;
        expect("the answer", answer, question)?;
    }
    Ok(String::new())
}
