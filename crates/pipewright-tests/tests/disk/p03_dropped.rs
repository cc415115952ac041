//! Dropping operations and engines at any moment is safe, and leaves nothing behind.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pipewright_disk::{EngineOptions, ErrorKind, Operation, SharedEngine};
use pipewright_tests::{count, isolate, watchdog};

use super::{BACKENDS, engine, file_with, folder, pattern};

const BLOCK: usize = 64 << 10;

#[test]
fn an_engine_can_be_dropped_with_operations_at_every_stage() {
    isolate::isolated(
        "p03_dropped::an_engine_can_be_dropped_with_operations_at_every_stage",
        || {
            let _watch = watchdog::watch();
            let folder = folder();
            let content = pattern(64 * BLOCK);
            for backend in BACKENDS {
                let options = EngineOptions {
                    backend,
                    depth: 64,
                    cached_first: false,
                    ..EngineOptions::default()
                };
                let mut settled = None;
                for round in 0..40 {
                    let Some(mut engine) = engine(options) else { break };
                    let direct = round % 2 == 0;
                    let file = file_with(&folder, "dropped", &content, direct);
                    for block in 0..64 {
                        let (buffer, at) = (file.buffer(BLOCK).unwrap(), block * BLOCK as u64);
                        let operation = match block % 3 {
                            0 => Operation::read_exact_at(&file, buffer, at),
                            1 => Operation::write_all_at(&file, buffer, at),
                            _ => Operation::sync_all(&file),
                        };
                        engine.queue(operation).unwrap();
                        // Queued, submitted, done and not taken, taken: by the round.
                        if block == round {
                            engine.submit().unwrap();
                        }
                    }
                    if round % 4 == 1 {
                        for _ in 0..round {
                            engine.next().unwrap().unwrap().result.unwrap();
                        }
                    }
                    drop(engine);
                    // What has begun is over: nothing changes the file behind us.
                    let first = std::fs::read(file.path()).unwrap();
                    assert!(first == std::fs::read(file.path()).unwrap());
                    drop(file);
                    let now = (count::handles(), count::rss_bytes());
                    // Threads that have just ended may still be counted in the first rounds.
                    if round == 19 {
                        settled = Some(now);
                    }
                }
                if let Some((handles, rss)) = settled {
                    watchdog::until("no handle is left", || count::handles() <= handles);
                    let grown = count::rss_bytes().saturating_sub(rss);
                    // 20 rounds of 64 buffers are 80 MiB.
                    assert!(grown < 24 << 20, "{backend}: {grown} bytes more than before");
                }
            }
        },
    );
}

#[test]
fn a_cancelled_operation_comes_back_with_its_buffer() {
    let _watch = watchdog::watch();
    let folder = folder();
    for backend in BACKENDS {
        let options = EngineOptions {
            backend,
            depth: 64,
            cached_first: false,
            threads: Some(1),
            ..Default::default()
        };
        for classes in [false, true] {
            let Some(mut engine) = engine(EngineOptions { classes, ..options }) else { continue };
            let file = file_with(&folder, "cancelled", &pattern(BLOCK), false);
            let ids: Vec<_> = (0..64)
                .map(|_| {
                    let buffer = file.buffer(BLOCK).unwrap();
                    engine.queue(Operation::write_all_at(&file, buffer, 0)).unwrap()
                })
                .collect();
            // Some before they are handed over, the rest afterwards.
            ids.iter().step_by(2).for_each(|id| engine.cancel(*id));
            engine.submit().unwrap();
            ids.iter().for_each(|id| engine.cancel(*id));
            let mut seen = 0;
            while let Some(done) = engine.next().unwrap() {
                assert_eq!(done.buffer.len(), BLOCK);
                match done.result {
                    Ok(completion) => assert_eq!(completion.bytes, BLOCK),
                    Err(error) => assert_eq!(error.kind(), &ErrorKind::Cancelled, "{error}"),
                }
                seen += 1;
            }
            assert_eq!(seen, 64, "{backend}");
            // Nothing is wrong with the file, nor with the engine.
            engine.sync_all(&file).result.unwrap();
            assert!(!file.is_poisoned());
        }
    }
}

#[test]
fn tasks_can_be_dropped_at_every_stage() {
    isolate::isolated("p03_dropped::tasks_can_be_dropped_at_every_stage", || {
        let _watch = watchdog::watch();
        let folder = folder();
        let content = pattern(16 * BLOCK);
        let before = count::handles();
        for backend in BACKENDS {
            // Fewer than are asked for, so that some never begin.
            let options = EngineOptions {
                backend,
                depth: 4,
                cached_first: false,
                ..EngineOptions::default()
            };
            if engine(options).is_none() {
                continue;
            }
            let shared = SharedEngine::new(options).unwrap();
            let file = file_with(&folder, "tasks", &content, true);
            for round in 0..50_u64 {
                let mut kept = Vec::new();
                for block in 0..16 {
                    let at = block * BLOCK as u64;
                    let mut pending =
                        Box::pin(shared.read_exact_at(&file, file.buffer(BLOCK).unwrap(), at));
                    if block % 2 == 0 {
                        let mut context = Context::from_waker(Waker::noop());
                        if let Poll::Ready(done) = pending.as_mut().poll(&mut context) {
                            done.result.unwrap();
                            continue;
                        }
                    }
                    if block % 3 == round % 3 {
                        kept.push((at as usize, pending));
                    }
                }
                for (at, pending) in kept {
                    let done = std::pin::Pin::into_inner(pending).wait();
                    assert_eq!(done.result.unwrap().bytes, BLOCK);
                    assert!(done.buffer[..] == content[at..at + BLOCK], "{backend}");
                }
            }
            // What outlives its engine is done all the same.
            let last = shared.read_exact_at(&file, file.buffer(BLOCK).unwrap(), 0);
            drop(shared);
            assert!(last.wait().buffer[..] == content[..BLOCK]);
        }
        watchdog::until("no handle is left", || count::handles() <= before);
        watchdog::until("no thread of an engine is left", || count::threads() <= 3);
    });
}

/// Who has been told of the last operation has the file to himself: when he drops it, it is closed.
#[test]
#[cfg(target_os = "linux")]
fn a_file_is_closed_as_soon_as_whoever_was_told_last_drops_it() {
    let is_open = |name: &std::path::Path| {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == name))
    };
    let _watch = watchdog::watch();
    let folder = folder();
    let path = folder.path().canonicalize().unwrap().join("closed");
    std::fs::write(&path, pattern(BLOCK)).unwrap();
    for backend in BACKENDS {
        let options = EngineOptions { backend, cached_first: false, ..EngineOptions::default() };
        let Some(own) = engine(options) else { continue };
        drop(own);
        let engine = SharedEngine::new(options).unwrap();
        for round in 0..2_000 {
            let file = pipewright_disk::DiskFile::options().read(true).open(&path).unwrap();
            let buffer = file.buffer(BLOCK).unwrap();
            let done = engine.read_at(&file, buffer, 0).wait();
            assert_eq!(done.result.as_ref().unwrap().bytes, BLOCK);
            drop((done, file));
            assert!(!is_open(&path), "{backend}, round {round}");
        }
    }
}

#[test]
fn a_hundred_thousand_that_wait_can_be_dropped_together() {
    // With a look at all that wait for each of them this took many minutes.
    let _watch = watchdog::watch();
    let folder = folder();
    let file = file_with(&folder, "together", &pattern(BLOCK), false);
    let options = EngineOptions { depth: 1, cached_first: false, ..EngineOptions::default() };
    let shared = SharedEngine::new(options).unwrap();
    let mut all: Vec<_> = (0..100_000).map(|_| shared.sync_data(&file)).collect();
    let last = all.pop().unwrap();
    drop(all);
    last.wait().result.unwrap();
    assert_eq!(shared.sync_data(&file).wait().result.unwrap().bytes, 0);
}

#[test]
fn a_task_is_woken_whichever_waker_it_had_last() {
    let _watch = watchdog::watch();
    let folder = folder();
    let file = file_with(&folder, "woken", &pattern(BLOCK), true);
    let shared = SharedEngine::new(EngineOptions::default()).unwrap();
    for _ in 0..200 {
        let mut pending = pin!(shared.read_at(&file, file.buffer(BLOCK).unwrap(), 0));
        // With a waker that wakes nobody, then from another thread with its own.
        if pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            continue;
        }
        let (told, tell) = std::sync::mpsc::channel();
        let waker = Waker::from(std::sync::Arc::new(Tell(std::sync::Mutex::new(told))));
        while pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            tell.recv().expect("it is woken");
        }
    }
}

struct Tell(std::sync::Mutex<std::sync::mpsc::Sender<()>>);

impl std::task::Wake for Tell {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}
