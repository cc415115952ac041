//! The suite of `pipewright-ipc`: hosts and workers, a file a subject.

mod async_calls;
mod calls;
mod clients;
mod hostile;
mod never_hangs;
mod nothing_left;
mod pool;
mod pool_bounds;
mod services;
mod started_as_worker;
mod whole_and_in_order;

use std::time::Duration;

use pipewright::{Command, ExitStatus, Handle, Signal};
use pipewright_ipc::{Channel, Options, SharedMemory};

/// Returns a command that runs the puppet as a worker of that kind.
fn worker(kind: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(format!("ipc={kind}"));
    command
}

/// Starts a worker of that kind, and returns the channel to it.
#[track_caller]
fn start(kind: &str, options: &Options) -> Channel {
    Channel::start(&mut worker(kind), options).unwrap()
}

/// Returns options with shared memory and without it: both behave the same. (A machine without shared memory
/// runs both without; `refused_memory` reports that.)
fn both_ways() -> [Options; 2] {
    [SharedMemory::Auto, SharedMemory::Off]
        .map(|shared_memory| Options { shared_memory, ..Options::default() })
}

/// Checks that a process was killed: by a signal on Unix, with the code of a terminated process on Windows.
#[track_caller]
fn was_killed(status: ExitStatus) {
    assert!(status.was_killed(), "{status}");
    assert_eq!(status.terminating_signal(), cfg!(unix).then_some(Signal::KILL), "{status}");
}

/// Returns the text of a status with that code: each system has its own words, as with std.
fn exit_words(code: i32) -> String {
    format!("exit {}: {code}", if cfg!(windows) { "code" } else { "status" })
}

/// Returns a command that is not a worker, writes to stderr and exits.
fn complains_and_ends() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.args(["err=no disk", "exit=4"]);
    command
}

/// Returns handles of a file that exists everywhere.
fn some_files(count: usize) -> Vec<Handle> {
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    (0..count).map(|_| Handle::from(file.try_clone().unwrap())).collect()
}

/// Returns the duration of the stress tests: half a minute, or `PIPEWRIGHT_TORTURE_SECONDS`.
fn torture_time() -> Duration {
    let seconds = std::env::var("PIPEWRIGHT_TORTURE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(30))
}
