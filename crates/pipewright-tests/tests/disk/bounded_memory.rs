//! Memory of an engine: bounded by its depth, not by the number of operations.

use pipewright_disk::{BackendKind, Engine, EngineOptions, ErrorKind, Operation};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::count;

use super::{BACKENDS, engine, file_with, folder, pattern};

const OPERATIONS: usize = 100_000;
const DEPTH: usize = 64;
const BLOCK: usize = 16 << 10;

#[isolated_test(limit = std::time::Duration::from_secs(300))]
fn memory_is_bounded_by_the_depth_not_by_the_queue() {
    let folder = folder();
    let file = file_with(&folder, "bounded", &pattern(64 * BLOCK), false);
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
                let at = (queued % 64 * BLOCK) as u64;
                let buffer = file.buffer(BLOCK).unwrap();
                engine.queue(Operation::read_exact_at(&file, buffer, at)).unwrap();
                queued += 1;
            }
            if queued < OPERATIONS {
                // An operation beyond the depth is returned with its buffer.
                let extra = Operation::read_at(&file, file.buffer(BLOCK).unwrap(), 0);
                assert_eq!(engine.queue(extra).unwrap_err().into_buffer().len(), BLOCK);
            }
            assert!(engine.len() <= DEPTH);
            let one = engine.next().unwrap().expect("some are under way");
            assert_eq!(one.result.unwrap().bytes, BLOCK);
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
