//! The code that all targets share: a host whose worker sends anything. `ci/fuzz.sh` runs them under libFuzzer.

use std::time::Duration;

use pipewright_ipc::{Options, SharedMemory};

/// Returns the options of the host: small limits and short timeouts.
pub fn options(shared_memory: SharedMemory) -> Options {
    Options {
        shared_memory,
        max_message_bytes: 64 << 10,
        ring_bytes: 64 << 10,
        spin: Duration::ZERO,
        handshake_timeout: Duration::from_millis(50),
        timeout: Some(Duration::from_millis(50)),
        ..Options::default()
    }
}
