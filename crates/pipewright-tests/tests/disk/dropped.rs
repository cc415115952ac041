//! Dropping operations and engines at any moment is safe, and leaves nothing behind; the memory of an engine.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pipewright_disk::{BackendKind, Engine, EngineOptions, ErrorKind, Operation, SharedEngine};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{count, watchdog};

use crate::{BACKENDS, engine, file_with, folder, pattern};

const BLOCK: usize = 64 << 10;

#[isolated_test]
fn an_engine_can_be_dropped_with_operations_at_every_stage() {
    let folder = folder();
    let content = pattern(64 * BLOCK);
    for backend in BACKENDS {
        let options =
            EngineOptions { backend, depth: 64, cached_first: false, ..EngineOptions::default() };
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
            // Started operations are over: nothing changes the file later.
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
}

#[watched_test]
fn a_cancelled_operation_comes_back_with_its_buffer() {
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
            // Some before they are submitted, the rest afterwards.
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
            // The file and the engine still work.
            engine.sync_all(&file).result.unwrap();
            assert!(!file.is_poisoned());
        }
    }
}

#[isolated_test]
fn tasks_can_be_dropped_at_every_stage() {
    let folder = folder();
    let content = pattern(16 * BLOCK);
    let before = count::handles();
    for backend in BACKENDS {
        // Fewer than are requested, so that some never start.
        let options =
            EngineOptions { backend, depth: 4, cached_first: false, ..EngineOptions::default() };
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
        // Operations that outlive their engine are still done.
        let last = shared.read_exact_at(&file, file.buffer(BLOCK).unwrap(), 0);
        drop(shared);
        assert!(last.wait().buffer[..] == content[..BLOCK]);
    }
    watchdog::until("no handle is left", || count::handles() <= before);
    watchdog::until("no thread of an engine is left", || count::threads() <= 3);
}

/// After the last operation on a file, the caller has the only handle: dropping it closes the file.
#[watched_test]
#[cfg(target_os = "linux")]
fn a_file_is_closed_as_soon_as_its_last_user_drops_it() {
    let is_open = |name: &std::path::Path| {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == name))
    };
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

#[watched_test]
fn a_hundred_thousand_pending_operations_can_be_dropped() {
    // With a scan of all waiting operations for each drop this took many minutes.
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

#[watched_test]
fn the_last_waker_of_a_task_is_woken() {
    let folder = folder();
    let file = file_with(&folder, "woken", &pattern(BLOCK), true);
    let shared = SharedEngine::new(EngineOptions::default()).unwrap();
    for _ in 0..200 {
        let mut pending = pin!(shared.read_at(&file, file.buffer(BLOCK).unwrap(), 0));
        // With a waker that wakes nothing, then from another thread with its own.
        if pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            continue;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let waker = Waker::from(std::sync::Arc::new(Tell(std::sync::Mutex::new(sender))));
        while pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            receiver.recv().expect("it is woken");
        }
    }
}

struct Tell(std::sync::Mutex<std::sync::mpsc::Sender<()>>);

impl std::task::Wake for Tell {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

const OPERATIONS: usize = 100_000;
const DEPTH: usize = 64;
const SMALL_BLOCK: usize = 16 << 10;

#[isolated_test(limit = std::time::Duration::from_secs(300))]
fn memory_is_bounded_by_the_depth_not_by_the_queue() {
    let folder = folder();
    let file = file_with(&folder, "bounded", &pattern(64 * SMALL_BLOCK), false);
    for backend in BACKENDS {
        let options = EngineOptions {
            backend,
            depth: DEPTH,
            cached_first: false,
            ..EngineOptions::default()
        };
        let Some(mut engine) = engine(options) else { continue };
        let (mut queued, mut done, mut most) = (0, 0, 0);
        let mut before = None;
        while done < OPERATIONS {
            while queued < OPERATIONS && engine.has_room() {
                let at = (queued % 64 * SMALL_BLOCK) as u64;
                let buffer = file.buffer(SMALL_BLOCK).unwrap();
                engine.queue(Operation::read_exact_at(&file, buffer, at)).unwrap();
                queued += 1;
            }
            if queued < OPERATIONS {
                // An operation beyond the depth is returned with its buffer.
                let extra = Operation::read_at(&file, file.buffer(SMALL_BLOCK).unwrap(), 0);
                assert_eq!(engine.queue(extra).unwrap_err().into_buffer().len(), SMALL_BLOCK);
            }
            assert!(engine.len() <= DEPTH);
            let one = engine.next().unwrap().expect("some are under way");
            assert_eq!(one.result.unwrap().bytes, SMALL_BLOCK);
            done += 1;
            if done % 1000 == 0 {
                // The threads exist by then, and their memory: 1 MiB each under Wine.
                let base = *before.get_or_insert_with(count::rss_bytes);
                most = most.max(count::rss_bytes().saturating_sub(base));
            }
        }
        // Depth times block is 1 MiB; all that was read is 1600.
        assert!(most < 12 << 20, "{backend}: {most} bytes more, for a depth of {DEPTH}");
    }
}

#[watched_test]
fn a_depth_beyond_memory_is_an_error() {
    for backend in BACKENDS.into_iter().chain([BackendKind::Auto]) {
        for depth in [0, (1 << 20) + 1, u32::MAX as usize, usize::MAX] {
            let options = EngineOptions { backend, depth, ..EngineOptions::default() };
            let error = Engine::new(options).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{backend}, {depth}");
        }
    }
}
