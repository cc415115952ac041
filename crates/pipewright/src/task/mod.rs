//! The verbs for tasks of a tokio runtime.
//!
//! Each does what its twin without `_async` does, by the same rules and the same code; only the wait
//! is another: the task is woken where a thread would have slept. So a program can use both, and
//! nothing of a command has to be said twice.
//!
//! | file | what |
//! |---|---|
//! | `seeing.rs` | a run that a future sees through to its end |
//! | `verbs.rs` | the verbs of a command |
//! | `lines.rs` | both streams, line by line |
//! | `events.rs` | what happens, as it happens |
//! | `all.rs` | many commands at once |
//! | `runner.rs` | the same, and more can come |
//! | `turn.rs` | which of them has something to do |
//!
//! What else waits has its twin beside it: `child/task.rs`, `process_handle/task.rs`,
//! `pipeline/task.rs`.

mod all;
mod events;
mod lines;
mod runner;
mod seeing;
mod turn;
mod verbs;

use std::ffi::OsStr;

use pipewright_os::base::wait;

use crate::error::{Doing, Error, ErrorKind};

pub use all::AsTheyEndAsync;
pub use events::AsyncEvents;
pub use lines::AsyncLines;
pub use runner::AsyncRunner;

/// Refuses a call that no tokio runtime drives, before it has done anything.
pub(crate) fn check_runtime(program: &OsStr, doing: Doing) -> Result<(), Error> {
    wait::check_runtime()
        .map_err(|error| Error::new(program, doing, ErrorKind::Unsupported, Some(error)))
}

/// The same for a call that waits for a child that runs.
pub(crate) fn check_runtime_to_wait(program: &OsStr) -> Result<(), Error> {
    check_runtime(program, Doing::Talk("wait for"))
}
