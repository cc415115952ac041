//! What the targets share: a host that meets a worker who sends anything.

use std::time::Duration;

use pipewright_ipc::{Options, SharedMemory};

/// The options of the host: little is allowed, and nobody is waited for long.
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
