//! Runs processes without deadlocks, leaks, orphans or blocked threads.
//!
//! [`Command`] has the names of [`std::process::Command`] and most of its rules. It adds timeouts, output limits,
//! text and lines, pipelines, process trees and async methods. The module [`process`] has std's exact shape and
//! rules, for existing code that should change only its `use` lines.
//!
//! ```
//! use pipewright::{Command, Outcome};
//! use std::time::Duration;
//!
//! // Stdout as trimmed text. Anything but success is an error with the reason.
//! assert_eq!(Command::new("echo").arg("hi").read()?, "hi");
//!
//! // Both streams as text, the status and more. A timeout is not an error: the output so far is there.
//! let capture = Command::new("sh")
//!     .args(["-c", "echo started; sleep 60"])
//!     .timeout(Duration::from_secs(1))
//!     .capture()?;
//! assert_eq!(capture.stdout, "started\n");
//! assert_eq!(capture.outcome, Outcome::TimedOut);
//! # Ok::<(), pipewright::Error>(())
//! ```
//!
//! # Which call to use
//!
//! | I want to … | use |
//! |---|---|
//! | run a command and fail unless it succeeds | [`run`](Command::run) |
//! | the same, and get its stdout as a string | [`read`](Command::read) |
//! | get only the exit status | [`status`](Command::status) |
//! | get both streams and all facts about the run | [`capture`](Command::capture) for text, [`output`](Command::output) for bytes |
//! | turn such a result into an error if the command failed | [`Captured::check`] |
//! | read output while the command runs | [`lines`](Command::lines), or [`events`](Command::events) for bytes, the start and the end |
//! | give the command a terminal of its own | [`pty`](Command::pty), with any verb |
//! | answer the prompts of a program on a terminal | `Session` (feature `session`) |
//! | write to the command, read from it and signal it myself | [`spawn`](Command::spawn), which returns a [`Child`] with std's fields and methods |
//! | read all output of a spawned child | [`read_all_text`](Child::read_all_text), [`read_all_bytes`](Child::read_all_bytes), [`read_all_lines`](Child::read_all_lines), [`read_all_events`](Child::read_all_events) |
//! | wait for a spawned child with a limit, or stop it | [`Child::try_wait_for`], [`Child::stop`] |
//! | connect commands by pipes | `a \| b` or [`pipe`](Command::pipe): a [`Pipeline`] with the same verbs |
//! | run many commands, some at the same time | [`run_all`]; [`Runner`] if a result decides what runs next (retries, graphs, queues) |
//! | wait for a process or kill it, without its streams | [`start`](Command::start), which returns a [`ProcessHandle`] |
//! | wait for any process or kill it, by pid | [`ProcessHandle::open`] |
//! | start a command and forget it | [`start_and_forget`](Command::start_and_forget), which returns the pid; no zombie remains |
//! | replace this process | [`exec`](Command::exec) |
//! | compile the same code with `std::process` | the module [`process`] |
//!
//! In these docs, a *verb* is a method that starts a command, or waits for a child. `read`, `capture`, `output`,
//! `lines` and `events` are the *capturing* verbs: unless you set the streams, they capture stdout and stderr, and
//! stdin is empty.
//!
//! All verbs keep these promises:
//!
//! * Nothing deadlocks: both streams are read while input is fed, on the calling thread.
//! * The child inherits its stdio, the handles that you list, and no other handle.
//! * A descendant that keeps a pipe open does not make the call hang.
//! * A start costs the same however large this program is.
//! * After the error of a verb that starts a command, no child, handle or zombie is left.
//!
//! If you read or write the streams of a spawned child yourself, instead of calling `read_all_*`, the first and
//! third promises do not hold, as in std. The module [`process`] has std's rules.
//!
//! `lines` and `events` read only when you call them. A child that writes faster blocks, so memory stays bounded. A
//! timeout that expires between two calls takes effect at the next call. If your code takes long between the calls,
//! set [`enforce_in_background`](Command::enforce_in_background). `capture` and the other verbs that run the command
//! to its end enforce timeouts all the time.
//!
//! # How long a child lives
//!
//! | setter | kills | when |
//! |---|---|---|
//! | [`timeout`](Command::timeout), [`cancel`](Command::cancel) | the child and the descendants that can be found | the time is up, the token is cancelled |
//! | [`contain(Contain::Tree)`](Command::contain) | everything that the child started | a verb that runs the command to its end returns, or the child's handle is dropped |
//! | [`kill_on_parent_exit`](Command::kill_on_parent_exit) | the child ([`Scope::Child`]), or also everything that it started ([`Scope::Tree`]) | this process ends in any way, even by SIGKILL |
//! | [`kill_on_drop`](Command::kill_on_drop) | the child and the descendants that can be found | the handle is dropped |
//! | [`detached`](Command::detached) | nothing | never: the child outlives this process and its terminal |
//!
//! *The descendants that can be found* are those that are still linked to the child by parentage at that moment. A
//! daemon, for example, is not: its parent has ended.
//!
//! `contain` and `kill_on_parent_exit` do different things. While this process lives, `contain` decides which
//! processes a stop reaches, and kills those that a child leaves behind. `kill_on_parent_exit` acts when this process
//! ends. A job runner usually needs both: `kill_on_parent_exit(Scope::Tree)` includes `contain(Contain::Tree)`. Both
//! need support from the system; [`Child::containment`] and [`Captured::containment`] report the mechanism that was
//! used.
//!
//! For Ctrl-C and other signals, see [`CancelToken::cancel_on`] and `docs/stopping.md` in the repository.
//!
//! # Features
//!
//! All are off by default.
//!
//! | feature | adds | depends on |
//! |---|---|---|
//! | `tokio` | an `_async` version of each verb that waits | tokio, futures-core |
//! | `encoding` | `Command::encoding`: text that is not UTF-8 | encoding_rs |
//! | `session` | `Session`: types at a terminal and waits for what a program shows; `CastWriter` | |
//! | `regex` | `Pattern::regex`, and `session` | regex |
//! | `screen` | `Pattern::screen` and `Session::screen`, and `session` | vt100 |
//! | `serde` | `Serialize` for results and errors, with the fields and words of the tool's JSON | serde |
//! | `os_pipe` | the pipes of the crate os_pipe as [`Stdio`] | os_pipe |
//! | `tracing` | a span for each process; its start, stop, end and leftovers as events | tracing |
//!
//! # Platforms
//!
//! Linux 5.10 and later, Windows 10 and later (tested under Wine), macOS (type-checked, never run). The section
//! "Platform" of a method names its system calls; `docs/platforms.md` in the repository lists them by feature. An
//! option that a system does not have is an [`Unsupported`](ErrorKind::Unsupported) error.
//!
//! # Related crates
//!
//! * `pipewright-ipc`: messages and calls between this program and worker processes, through shared memory.
//! * `pipewright-disk`: file I/O that reports whether it was asynchronous.
//! * `pipewright-cli`: the command `pipewright`, with these verbs for a shell.
//!
//! # Async
//!
//! With the feature `tokio`, each verb that waits also has an `_async` version with the same rules and results. It
//! blocks no thread on any system, and needs no thread of its own.
//!
//! | blocking | async | if the future is dropped |
//! |---|---|---|
//! | `status`, `output`, `capture`, `run`, `read` | `status_async` and so on | the child is killed |
//! | `lines`, `events` | `lines_async`, `events_async`: a `Stream`, or `next().await` | the next call continues |
//! | [`Child::wait`], `try_wait_for`, `stop` | `wait_async` and so on | the child is not affected |
//! | [`Child::wait_with_output`], `read_all_*` | `wait_with_output_async` and so on | the [`Child`] is dropped |
//! | [`ProcessHandle::wait`] and the like | `wait_async` and so on | the process is not affected |
//! | [`RunAll::captures`], [`as_they_end`](RunAll::as_they_end) | `captures_async`, `as_they_end_async` | running commands are killed; `as_they_end_async`: the next call continues |
//! | [`Runner`] | `AsyncRunner`: a `Stream`, or `next().await` | the next call continues |
//! | `Read` and `Write` of a [`ChildStdout`], a [`ChildStdin`] | `into_async`: tokio's `AsyncRead` and `AsyncWrite` |
//! no byte is lost |
//! | `std::io::stdin` and the like | `stdin_async`, `stdout_async`, `stderr_async` | no byte is lost |
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
//! The start itself blocks the task for about a tenth of a millisecond. Windows: one thread of this crate waits on
//! behalf of all tasks of the process.

#![forbid(unsafe_code)]
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use(run_async_for_test)]
extern crate pipewright_os;

mod cancel;
mod child;
mod command;
mod error;
mod events;
mod input;
mod lines;
mod outcome;
mod output;
mod pipeline;
pub mod process;
mod process_handle;
mod reaper;
mod run;
mod run_all;
mod running_output;
#[cfg(feature = "serde")]
mod serialized;
#[cfg(feature = "session")]
mod session;
mod trace;

pub use cancel::{CancelToken, SignalGuard};
pub use child::Child;
pub use command::{Command, CommandArgs, CommandEnvs, Contain, Scope, Stdio, TreeSlot};
pub use error::{Error, ErrorKind, NotExecutable, NotSeen};
#[cfg(feature = "tokio")]
pub use events::AsyncEvents;
pub use events::{Event, Events};
#[cfg(feature = "tokio")]
pub use lines::AsyncLines;
pub use lines::{Line, Lines};
pub use outcome::{Exceeded, Outcome, Source};
pub use output::{Capture, Captured, Ending, Output, TeeFailed};
pub use pipeline::{
    Pipeline, PipelineCapture, PipelineChild, PipelineOutput, Pipelined, Stage, StageEnd,
};
pub use process_handle::{ProcessEnd, ProcessHandle};
pub use run::{ChildEnd, Limit, Linger, Next, RunHandle};
#[doc(hidden)]
pub use run::{HeadAndTail, KeptEnds, SpillFailed};
pub use run_all::{AsTheyEnd, RunAll, Runnable, Runner, RunnerWaker, run_all};
#[cfg(feature = "tokio")]
pub use run_all::{AsTheyEndAsync, AsyncRunner};
pub use running_output::RunningOutput;
#[cfg(feature = "screen")]
pub use session::Screen;
#[cfg(feature = "session")]
pub use session::{CastFormat, CastWriter, InteractEnd, Key, Match, Pattern, RawTerminal, Session};

#[cfg(feature = "tokio")]
pub use pipewright_os::base::async_pipe::{AsyncPipeReader, AsyncPipeWriter};
pub use pipewright_os::base::caught_signals::{ArrivedSignal, CaughtSignals};
pub use pipewright_os::base::handle::{Handle, HandleKind, OpenHandle, open_handles};
pub use pipewright_os::base::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair as pipe};
pub use pipewright_os::base::signal::{Signal, UnknownSignal};
#[cfg(feature = "tokio")]
pub use pipewright_os::base::stdio::{
    AsyncStdin, AsyncStdout, stderr_async, stdin_async, stdout_async,
};
pub use pipewright_os::base::stdio::{console_err, console_in, console_out, null};
pub use pipewright_os::process::child::Containment;
pub use pipewright_os::process::limits::{
    HeldLimits, LimitKind, LimitMechanism, LimitUnavailable, MemoryLimit, OutOfMemory,
    TreeLimits as Limits, Victim,
};
pub use pipewright_os::process::pty::{Pty, PtySize};
pub use pipewright_os::process::start::{Resource, ResourceLimit};
pub use pipewright_os::process::status::{ExitStatus, ExitStatusError};
pub use pipewright_os::process::usage::{TreeUsage, Usage};

/// The parent's end of a child's stdin.
pub type ChildStdin = PipeWriter;
/// The parent's end of a child's stdout.
pub type ChildStdout = PipeReader;
/// The parent's end of a child's stderr.
pub type ChildStderr = PipeReader;

/// The capabilities of this machine.
pub mod machine {
    pub use pipewright_os::process::capabilities::{Facility, State, facilities};
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
