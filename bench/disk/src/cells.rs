//! The cells of pipewright-disk.

use std::path::Path;
use std::time::{Duration, Instant};

use pipewright_bench::stats::Summary;
use pipewright_disk::diagnosis::{DiagnoseOptions, diagnose};
use pipewright_disk::{BackendKind, DiskFile, Engine, EngineOptions, Operation, SharedEngine};

use crate::Result;
use crate::peers::{BLOCK, Places, WRITE_BLOCK, WRITE_BYTES, WRITE_DEPTH, mib_a_second, writes_to};

/// Reads blocks that are in memory, one after the other.
pub(crate) fn cached(path: &Path, time: Duration) -> Result<f64> {
    let file = DiskFile::options().read(true).open(path)?;
    let mut engine = Engine::new(EngineOptions::default())?;
    let (mut places, mut buffer) = (Places::default(), file.buffer(BLOCK)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..256 {
            let done = engine.read_at(&file, buffer, places.next_place());
            done.result?;
            buffer = done.buffer;
        }
        count += 256;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

pub(crate) fn cached_shared(path: &Path, time: Duration) -> Result<f64> {
    let file = DiskFile::options().read(true).open(path)?;
    let engine = SharedEngine::new(EngineOptions::default())?;
    let (mut places, mut buffer) = (Places::default(), file.buffer(BLOCK)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..256 {
            let done = engine.read_at(&file, buffer, places.next_place()).wait();
            done.result?;
            buffer = done.buffer;
        }
        count += 256;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Writes blocks that are in memory, one after the other: with plain calls first, or through the backend.
pub(crate) fn alone(path: &Path, time: Duration, cached_first: bool) -> Result<f64> {
    let file = DiskFile::options().write(true).open(path)?;
    let mut engine = Engine::new(EngineOptions { cached_first, ..EngineOptions::default() })?;
    let (mut places, mut buffer) = (Places::near(), file.buffer(BLOCK)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..64 {
            let done = engine.write_at(&file, buffer, places.next_place());
            done.result?;
            buffer = done.buffer;
        }
        count += 64;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Reads past the cache, and always keeps `depth` reads in flight.
pub(crate) fn direct(path: &Path, time: Duration, depth: usize) -> Result<f64> {
    let file = DiskFile::options().read(true).direct(true).open(path)?;
    let backend = BackendKind::IoUring;
    let mut engine = Engine::new(EngineOptions { backend, depth, ..EngineOptions::default() })?;
    let mut places = Places::default();
    for _ in 0..depth {
        let read = Operation::read_at(&file, file.buffer(BLOCK)?, places.next_place());
        engine.queue(read).map_err(|_| "the queue is full")?;
    }
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..64 {
            let done = engine.next()?.ok_or("no read is in flight")?;
            assert_eq!(done.result?.bytes, BLOCK);
            let next = Operation::read_at(&file, done.buffer, places.next_place());
            engine.queue(next).map_err(|_| "the queue is full")?;
        }
        count += 64;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Writes a preallocated file from the beginning to the end.
pub(crate) fn write(folder: &Path) -> Result<f64> {
    let path = writes_to(folder);
    let options = DiskFile::options().write(true).create(true).truncate(true).direct(true);
    let file = options.preallocate(WRITE_BYTES).open(&path)?;
    let mut engine = Engine::new(EngineOptions { depth: WRITE_DEPTH, ..EngineOptions::default() })?;
    let mut offset = 0;
    let began = Instant::now();
    let mut buffers = (0..WRITE_DEPTH)
        .map(|_| file.buffer(WRITE_BLOCK))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    while offset < WRITE_BYTES || !engine.is_empty() {
        while let (true, Some(buffer)) = (offset < WRITE_BYTES, buffers.pop()) {
            let write = Operation::write_all_at(&file, buffer, offset);
            engine.queue(write).map_err(|_| "the queue is full")?;
            offset += WRITE_BLOCK as u64;
        }
        if let Some(done) = engine.next()? {
            done.result?;
            buffers.push(done.buffer);
        }
    }
    let took = began.elapsed();
    std::fs::remove_file(&path)?;
    Ok(mib_a_second(took))
}

/// Prints the duration of a diagnosis of a file that is in memory, and of one that is not.
pub(crate) fn diagnosis(path: &Path) -> Result<()> {
    println!("\n## diagnosis\n");
    for is_cached in [true, false] {
        let file = DiskFile::options().read(true).open(path)?;
        if is_cached {
            std::io::copy(&mut std::fs::File::open(path)?, &mut std::io::sink())?;
        } else {
            file.forget_cache()?;
        }
        let mut times = Vec::new();
        for _ in 0..5 {
            if !is_cached {
                file.forget_cache()?;
            }
            let began = Instant::now();
            let report = diagnose(path, &DiagnoseOptions::default())?;
            times.push(began.elapsed().as_secs_f64());
            assert_eq!(report.tests.len(), 4);
        }
        let times = Summary::of(&times).ok_or("nothing was measured")?;
        let state = if is_cached { "in memory" } else { "not in memory" };
        println!("{state}: {:.3} s (most {:.3})", times.median, times.most);
    }
    Ok(())
}
