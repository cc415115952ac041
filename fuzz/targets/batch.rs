//! Sends any bytes to both sides of a connection between a batch and a worker on a node. They never crash, hang or use
//! much memory, no job ends twice, and nobody guesses a secret.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_cluster::fuzzing::{lying_host, lying_worker, strangers};

fuzz_target!(|bytes: &[u8]| {
    let Some((side, bytes)) = bytes.split_first() else { return };
    match side % 4 {
        // The order of messages is the most complex part.
        0 | 1 => lying_worker(bytes),
        2 => {
            lying_host(bytes);
        }
        _ => strangers(bytes),
    }
});
