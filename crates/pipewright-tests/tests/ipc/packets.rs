//! The examples: the packets of a build arrive, 434 MB in 5,000 to four workers and 120 MB in 1,664 back; and
//! hashes of large buffers.

use pipewright_test_macros::watched_test;
use pipewright_tests::skip;

use super::{both_ways, worker};

#[expect(dead_code, reason = "only the example itself calls it")]
#[path = "../../../pipewright-ipc/examples/build.rs"]
mod build;
#[expect(dead_code, reason = "only the example itself calls it")]
#[path = "../../../pipewright-ipc/examples/pool.rs"]
mod pool;

#[watched_test]
fn the_packets_of_a_build_arrive() {
    for options in both_ways() {
        let [there, back] = build::build(&options, || worker("build")).unwrap();
        assert_eq!((there.packets, there.bytes / 1_000_000), (5_000, 434));
        assert_eq!((back.packets, back.bytes / 1_000_000), (1_664, 120));
        let is_shared = options.shared_memory != pipewright_ipc::SharedMemory::Off
            && !skip::is_forced_off("memfd");
        for way in [there, back] {
            assert_eq!(way.shared_frames > 0, is_shared, "{way:?}");
        }
    }
}

#[watched_test]
fn a_pool_hashes_large_buffers() {
    let hashes = pool::hash_all(worker("hash"), 2, 20, 1 << 20).unwrap();
    let expected = (0..20).map(|number| pool::hash(&pool::buffer(number, 1 << 20)));
    assert_eq!(hashes, expected.collect::<Vec<_>>());
}
