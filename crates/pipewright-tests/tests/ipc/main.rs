//! What `pipewright-ipc` promises about hosts and workers, a file a promise.
#![cfg(unix)]

mod async_calls;
mod calls;
mod p01_whole_and_in_order;
mod p02_never_hangs;
mod p03_nothing_left;
mod p04_hostile;
mod p05_refused_memory;
mod p06_mismatch;
mod p07_both_send;
mod p09_kept;
mod p09_pool;
mod p10_build;
mod traced;
mod wire;

use std::time::Duration;

use pipewright::Command;
use pipewright_ipc::{Channel, Options, SharedMemory};

/// A command that runs the puppet as a worker of that kind.
fn worker(kind: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(format!("ipc={kind}"));
    command
}

/// A channel to a worker of that kind.
#[track_caller]
fn start(kind: &str, options: &Options) -> Channel {
    Channel::start(&mut worker(kind), options).unwrap()
}

/// With shared memory and without it: everything has to be the same. (Where this machine has none, both
/// are without it, and `p05_refused_memory` says so.)
fn both_ways() -> [Options; 2] {
    [SharedMemory::Auto, SharedMemory::Off]
        .map(|shared_memory| Options { shared_memory, ..Options::default() })
}

/// How long the torture takes altogether: half a minute, or `PIPEWRIGHT_TORTURE_SECONDS`.
fn torture_time() -> Duration {
    let seconds = std::env::var("PIPEWRIGHT_TORTURE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(30))
}
