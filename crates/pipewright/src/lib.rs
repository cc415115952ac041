//! Run processes without deadlocks, leaks, orphans or blocked threads.
//!
//! [`Command`] has the names of [`std::process::Command`], most of its rules, and everything std lacks. The module
//! [`process`] is `std::process` in its exact shape, so that a program or a library changes its `use` lines and nothing else.
//!
//! ```
//! use pipewright::Command;
//! use std::time::Duration;
//!
//! // What a program says, trimmed; anything but success is an error that tells why.
//! assert_eq!(Command::new("echo").arg("hi").read()?, "hi");
//!
//! // Both streams as text, and everything else there is to know. A timeout is data.
//! let capture = Command::new("sh")
//!     .args(["-c", "echo started; sleep 60"])
//!     .timeout(Duration::from_millis(100))
//!     .capture()?;
//! assert_eq!(capture.stdout, "started\n");
//! assert_eq!(capture.outcome, pipewright::Outcome::TimedOut);
//! # Ok::<(), pipewright::Error>(())
//! ```
//!
//! | verb | gives |
//! |---|---|
//! | [`Command::status`] | the exit status; std's rule |
//! | [`Command::output`] | both streams as bytes; std's rule |
//! | [`Command::capture`] | both streams as text |
//! | [`Command::run`] | nothing, or an error that tells why it failed |
//! | [`Command::read`] | stdout, trimmed, or an error that tells why it failed |
//! | [`Command::lines`] | both streams line by line, as they arrive |
//! | [`Command::events`] | what the child writes and how it ends, as it happens |
//! | [`Command::spawn`] | a [`Child`], std's shape |
//! | [`Command::start`] | a [`ProcessHandle`], without streams |
//! | [`Command::start_and_forget`] | a number; nothing is kept, nothing becomes a zombie |
//! | [`Command::exec`] | nothing: the command runs in the place of this process |
//! | `a \| b`, [`Command::pipe`] | a [`Pipeline`], with `status`, `output`, `capture`, `run`, `read` and `spawn` |
//! | [`run_all`] | what many commands say, some of them at once, on this thread |
//! | [`Runner`] | the same, of commands that are found while others run: retries, graphs, queues |
//! | [`Child::read_all_text`], [`read_all_bytes`](Child::read_all_bytes), [`read_all_lines`](Child::read_all_lines) | what a spawned child writes |
//! | [`ProcessHandle::open`] | a [`ProcessHandle`] on whatever process has that number |
//!
//! What all of them promise: both streams are read while input is fed, on the calling thread, so
//! nothing deadlocks; the child gets its stdio and no other handle of this program; a child whose
//! descendants keep its pipes open does not keep us; a start costs the same however large this
//! program is; and after an error no child, no handle and no zombie is left.
//!
//! How long a child lives, and what of it:
//!
//! | setter | what ends, and when |
//! |---|---|
//! | [`Command::timeout`], [`cancel`](Command::cancel) | the child, and the descendants that can be found: at that time, when told to |
//! | [`contain(Contain::Tree)`](Command::contain) | whatever the child has ever started: with it |
//! | [`Command::kill_on_parent_exit`] | the child, or whatever it has ever started: with this process, however that ends |
//! | [`Command::kill_on_drop`] | the child, and the descendants that can be found: with its handle |
//! | [`Command::detached`] | nothing: it outlives this process and its terminal |
//!
//! Ctrl-C and other signals: [`CancelToken::cancel_on`], and the page `docs/stopping.md`.

//! # Threads and tasks, side by side
//!
//! With the feature `tokio` each verb that waits has a twin with `_async`: the same command, the same
//! rules and the same results. It blocks no thread on any system, and takes none.
//!
//! | on a thread | in a task | dropped before its end |
//! |---|---|---|
//! | `status`, `output`, `capture`, `run`, `read` | `status_async` and so on | kills the child |
//! | `lines`, `events` | `lines_async`, `events_async`: a `Stream`, or `next().await` | goes on where it was |
//! | [`Child::wait`] | `wait_async` | leaves the child alone |
//! | [`Child::wait_with_output`], `read_all_*` | `wait_with_output_async` and so on | drops the child |
//! | [`ProcessHandle::wait`] and its kin | `wait_async` and so on | leaves the process alone |
//! | [`RunAll::captures`], [`as_they_end`](RunAll::as_they_end) | `captures_async`, `as_they_end_async` | kills those that run; goes on where it was |
//! | [`Runner`] | `AsyncRunner`: a `Stream`, or `next().await` | goes on where it was |
//! | `Read` and `Write` of a [`ChildStdout`], a [`ChildStdin`] | `into_async`: tokio's `AsyncRead` and `AsyncWrite` | loses no byte |
//! | `std::io::stdin` and its kin | `stdin_async`, `stdout_async`, `stderr_async` | loses no byte |
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use pipewright::Command;
//!
//! let mut greet = Command::new("echo").arg("hi").owned();
//! assert_eq!(greet.read()?, "hi");
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let (mut one, mut two) = (greet.arg("you").owned(), Command::new("echo"));
//! let (one, two) = tokio::join!(one.read_async(), two.arg("ho").read_async());
//! assert_eq!((one?.as_str(), two?.as_str()), ("hi you", "ho"));
//! # Ok::<(), pipewright::Error>(())
//! # }).unwrap();
//! # Ok::<(), pipewright::Error>(())
//! ```
//!
//! The start is made in place, also by a task: it takes about a tenth of a millisecond. Windows: one thread
//! of this crate waits on behalf of all tasks of the process.

#![forbid(unsafe_code)]

#[macro_use]
mod forced;

mod cancel;
mod child;
mod command;
mod drive;
mod error;
mod events;
mod lines;
mod next;
mod output;
mod pipeline;
pub mod process;
mod process_handle;
mod run_all;
mod signal_guard;
#[cfg(feature = "tokio")]
mod task;
mod text;
mod trace;

pub use cancel::CancelToken;
pub use child::Child;
pub use command::{Command, CommandArgs, CommandEnvs, Contain, Limit, Linger, Scope, Stdio};
pub use error::{Error, ErrorKind, NotExecutable};
pub use events::{Event, Events};
pub use lines::{Line, Lines};
pub use next::Next;
pub use output::{Capture, Captured, Ending, Exceeded, Outcome, Output, Source, TeeFailed};
pub use pipeline::{
    Pipeline, PipelineCapture, PipelineChild, PipelineOutput, Pipelined, Stage, StageEnd,
};
pub use process_handle::{ProcessEnd, ProcessHandle};
pub use run_all::{AsTheyEnd, RunAll, Runnable, Runner, run_all};
pub use signal_guard::SignalGuard;
#[cfg(feature = "tokio")]
pub use task::{AsTheyEndAsync, AsyncEvents, AsyncLines, AsyncRunner};

pub use pipewright_os::contain::Containment;
pub use pipewright_os::exit::Usage;
pub use pipewright_os::handle::{Handle, HandleKind};
#[cfg(feature = "tokio")]
pub use pipewright_os::pipe::{AsyncPipeReader, AsyncPipeWriter};
pub use pipewright_os::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair as pipe};
pub use pipewright_os::probe::{OpenHandle, open_handles};
pub use pipewright_os::signal::{
    Arrived as ArrivedSignal, Caught as CaughtSignals, Signal, UnknownSignal,
};
pub use pipewright_os::spawn::{Resource, ResourceLimit};
pub use pipewright_os::status::{ExitStatus, ExitStatusError};
#[cfg(feature = "tokio")]
pub use pipewright_os::stdio::{AsyncStdin, AsyncStdout, stderr_async, stdin_async, stdout_async};
pub use pipewright_os::stdio::{console_err, console_in, console_out, null};

/// The parent's end of a child's stdin.
pub type ChildStdin = PipeWriter;
/// The parent's end of a child's stdout.
pub type ChildStdout = PipeReader;
/// The parent's end of a child's stderr.
pub type ChildStderr = PipeReader;

/// What this machine offers.
pub mod machine {
    pub use pipewright_os::probe::{Facility, State, facilities};
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Runs the code of the page.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/stopping.md")]
mod stopping {}

/// The platform layer, for the other crates of the family. Not covered by any promise.
#[doc(hidden)]
pub use pipewright_os as os;
