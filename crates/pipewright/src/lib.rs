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
//! # Which call to use
//!
//! | you want | call |
//! |---|---|
//! | the exit status | [`status`](Command::status) |
//! | stdout as a string, and an error unless the command succeeded | [`read`](Command::read) |
//! | nothing but an error unless the command succeeded | [`run`](Command::run) |
//! | both streams and all facts about the run | [`capture`](Command::capture) as text, [`output`](Command::output) as bytes |
//! | output while the command runs | [`lines`](Command::lines); [`events`](Command::events) for chunks of bytes, with the start and the end |
//! | to write to the command, read from it and signal it yourself | [`spawn`](Command::spawn): a [`Child`] with std's fields and methods |
//! | to read all that a spawned child writes | [`read_all_text`](Child::read_all_text), [`read_all_bytes`](Child::read_all_bytes), [`read_all_lines`](Child::read_all_lines), [`read_all_events`](Child::read_all_events) |
//! | to stop a spawned child, or wait with a limit | [`Child::stop`], [`try_wait_for`](Child::try_wait_for) |
//! | an error out of a result that is no success | [`Captured::check`] |
//! | to wait for a process or kill it, without its streams | [`start`](Command::start): a [`ProcessHandle`]; [`ProcessHandle::open`] for the pid of any process |
//! | to start a command and forget it | [`start_and_forget`](Command::start_and_forget): its pid; it does not become a zombie |
//! | commands joined by pipes | `a \| b`, [`pipe`](Command::pipe): a [`Pipeline`], with the same verbs |
//! | many commands, some of them at once | [`run_all`]; [`Runner`] where a result decides what runs next: retries, graphs, queues |
//! | to replace this process | [`exec`](Command::exec) |
//! | code that has to compile with `std::process` as well | the module [`process`] |
//!
//! `lines` and `events` read only when they are asked to. A child that writes faster waits, so memory stays
//! bounded, and a timeout that passes between two calls takes effect at the next one. If your code takes long between the
//! calls, set [`enforce_in_background`](Command::enforce_in_background). `capture` and its kin read on the calling
//! thread until the end, so no timeout is late.
//!
//! All of them promise the following. Both streams are read while input is fed, on the calling thread, so nothing
//! deadlocks. The child inherits its stdio and no other handle. A descendant that keeps a pipe open does not make the
//! call hang. A start costs the same however large this program is. After an error no child, no handle and no zombie
//! is left.
//!
//! # How long a child lives
//!
//! | setter | kills | when |
//! |---|---|---|
//! | [`timeout`](Command::timeout), [`cancel`](Command::cancel) | the child and the descendants that can be found | the time is up, the token is cancelled |
//! | [`contain(Contain::Tree)`](Command::contain) | everything that the child has started | the child has ended, or its handle is dropped |
//! | [`kill_on_parent_exit`](Command::kill_on_parent_exit) | the child ([`Scope::Child`]), or everything that it has started ([`Scope::Tree`]) | this process ends in any way, by SIGKILL too |
//! | [`kill_on_drop`](Command::kill_on_drop) | the child and the descendants that can be found | the handle is dropped |
//! | [`detached`](Command::detached) | nothing | the child outlives this process and its terminal |
//!
//! `contain` and `kill_on_parent_exit` answer two questions. `contain` says which processes a stop reaches, and what
//! becomes of those that a child leaves behind: it works while this process lives. `kill_on_parent_exit` says what happens
//! when this process dies. A job runner usually wants both: `kill_on_parent_exit(Scope::Tree)` includes
//! `contain(Contain::Tree)`. Both need support from the system; [`Child::containment`] and
//! [`Captured::containment`] say which one was used.
//!
//! Ctrl-C and other signals: [`CancelToken::cancel_on`], and the page `docs/stopping.md` of the repository.
//!
//! # Features
//!
//! All are off by default.
//!
//! | feature | adds | depends on |
//! |---|---|---|
//! | `tokio` | `_async` twins of the verbs that wait | tokio, futures-core |
//! | `encoding` | `Command::encoding`: text that is not UTF-8 | encoding_rs |
//! | `tracing` | a span for each process; its start, stop, end and leftovers as events | tracing |
//!
//! # Related crates
//!
//! * `pipewright-ipc`: messages and calls between this program and worker processes, through shared memory.
//! * `pipewright-disk`: asynchronous file I/O that says whether it was asynchronous.
//! * `pipewright-cli`: the command `pipewright`, with these verbs for a shell.
//!
//! # Threads and tasks, side by side
//!
//! With the feature `tokio` each verb that waits has a twin with `_async`: the same command, the same
//! rules and the same results. It blocks no thread on any system, and needs no thread of its own.
//!
//! | on a thread | in a task | dropped before its end |
//! |---|---|---|
//! | `status`, `output`, `capture`, `run`, `read` | `status_async` and so on | kills the child |
//! | `lines`, `events` | `lines_async`, `events_async`: a `Stream`, or `next().await` | goes on where it was |
//! | [`Child::wait`], `try_wait_for`, `stop` | `wait_async` and so on | leaves the child alone |
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
//! A task starts its child in place, which takes about a tenth of a millisecond. Windows: one thread of this crate
//! waits on behalf of all tasks of the process.

#![forbid(unsafe_code)]

#[macro_use]
mod async_equivalence;

mod cancel;
mod child;
mod command;
mod error;
mod events;
mod input;
mod lines;
mod next;
mod outcome;
mod output;
mod pipeline;
pub mod process;
mod process_handle;
mod reaper;
mod rules;
mod run;
mod run_all;
#[cfg(feature = "tokio")]
mod runtime;
mod signal_guard;
mod text;
mod trace;

pub use cancel::CancelToken;
pub use child::Child;
pub use command::{Command, CommandArgs, CommandEnvs, Contain, Scope, Stdio};
pub use error::{Error, ErrorKind, NotExecutable};
#[cfg(feature = "tokio")]
pub use events::AsyncEvents;
pub use events::{Event, Events};
#[cfg(feature = "tokio")]
pub use lines::AsyncLines;
pub use lines::{Line, Lines};
pub use next::Next;
pub use outcome::{Exceeded, Outcome, Source};
pub use output::{Capture, Captured, Ending, Output, TeeFailed};
pub use pipeline::{
    Pipeline, PipelineCapture, PipelineChild, PipelineOutput, Pipelined, Stage, StageEnd,
};
pub use process_handle::{ProcessEnd, ProcessHandle};
pub use rules::{Limit, Linger};
pub use run_all::{AsTheyEnd, RunAll, Runnable, Runner, run_all};
#[cfg(feature = "tokio")]
pub use run_all::{AsTheyEndAsync, AsyncRunner};
pub use signal_guard::SignalGuard;

#[cfg(feature = "tokio")]
pub use pipewright_os::base::async_pipe::{AsyncPipeReader, AsyncPipeWriter};
pub use pipewright_os::base::caught_signals::{ArrivedSignal, CaughtSignals};
pub use pipewright_os::base::handle::{Handle, HandleKind};
pub use pipewright_os::base::handle::{OpenHandle, open_handles};
pub use pipewright_os::base::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair as pipe};
pub use pipewright_os::base::signal::{Signal, UnknownSignal};
#[cfg(feature = "tokio")]
pub use pipewright_os::base::stdio::{
    AsyncStdin, AsyncStdout, stderr_async, stdin_async, stdout_async,
};
pub use pipewright_os::base::stdio::{console_err, console_in, console_out, null};
pub use pipewright_os::process::child::Containment;
pub use pipewright_os::process::spawn::{Resource, ResourceLimit};
pub use pipewright_os::process::status::{ExitStatus, ExitStatusError};
pub use pipewright_os::process::usage::Usage;

/// The parent's end of a child's stdin.
pub type ChildStdin = PipeWriter;
/// The parent's end of a child's stdout.
pub type ChildStdout = PipeReader;
/// The parent's end of a child's stderr.
pub type ChildStderr = PipeReader;

/// What this machine offers.
pub mod machine {
    pub use pipewright_os::process::capabilities::{Facility, State, facilities};
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
