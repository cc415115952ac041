//! The result of a run.

mod check;
mod show;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright_os::process::child::Containment;
use pipewright_os::process::limits::{HeldLimits, OutOfMemory};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::{TreeUsage, Usage};

pub(crate) use check::{CapturedStream, TAIL_BYTES, check_success, check_tee};

use crate::outcome::{Exceeded, Outcome, Source};

/// The output of a child, as bytes ([`Output`]) or as text ([`Capture`]), and all other facts about its run.
///
/// To report a failed run on one line, print the error that [`check`](Self::check) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Captured<T> {
    /// The child's exit status.
    #[doc(alias = "exit_code")]
    pub status: ExitStatus,
    /// The child's stdout, if it was captured.
    pub stdout: T,
    /// The child's stderr, if it was captured.
    pub stderr: T,
    /// The reason why the run ended.
    #[doc(alias = "timed_out")]
    pub outcome: Outcome,
    /// The limit that stopped the run, if a limit stopped it.
    pub exceeded: Option<Exceeded>,
    /// The program, as it was given. For a pipeline, the program of the stage whose status counts, or of all stages if
    /// all were stopped.
    pub program: OsString,
    /// The child's former process id.
    pub pid: u32,
    /// The time from the start until the child and its output had ended.
    #[doc(alias = "duration")]
    pub elapsed: Duration,
    /// The processes of the tree that the kernel killed for lack of memory, if there were any, also if the run was stopped
    /// for another reason. Only for a command with [`limits`](crate::Command::limits).
    pub out_of_memory: Option<OutOfMemory>,
    /// The limits in force; `None` if the command has none, or if the system cannot hold any
    /// ([`Limits::best_effort`](crate::Limits::best_effort) on macOS).
    pub limits: Option<Box<HeldLimits>>,
    /// The usage of the whole tree; `None` if the command has no [`limits`](crate::Command::limits), or if the system
    /// cannot hold any. [`Limits::new`](crate::Limits::new) without a limit only measures.
    pub tree_usage: Option<Box<TreeUsage>>,
    /// CPU time and memory; `None` if other code in this program reaped the child.
    pub usage: Option<Usage>,
    /// True if the child had ended, and something else still held one of its streams open when reading ended. Any later
    /// output is lost. See [`Linger`](crate::Linger).
    pub held_open: bool,
    /// True if a [`Limit`](crate::Limit) dropped part of a stream.
    pub truncated: bool,
    /// The error of a [`Stdio::tee`](crate::Stdio::tee) or [`Stdio::tee_to`](crate::Stdio::tee_to) that could not write
    /// to its target. The capture is complete all the same.
    pub tee_failed: Option<TeeFailed>,
    /// The number of input bytes that the child did not read.
    pub stdin_unread: u64,
    /// The containment that the child had.
    pub containment: Containment,
    /// The number of processes that the child left running and that this crate killed; 0 if its tree is not
    /// contained ([`Contain::Tree`](crate::Contain::Tree)).
    pub leftovers_killed: u32,
    /// The number of bytes written to stdout, kept or not; `None` if stdout did not pass through this process.
    pub stdout_bytes: Option<u64>,
    /// The number of bytes written to stderr, kept or not; `None` if stderr did not pass through this process.
    pub stderr_bytes: Option<u64>,
    /// True if the stderr of the child whose status counts went to stdout.
    pub(crate) stderr_merged: bool,
}

/// The error of a tee that could not write to its target.
///
/// ```
/// let done = pipewright::Command::new("echo").stdout(pipewright::Stdio::tee()).output()?;
/// if let Some(failed) = done.tee_failed.filter(|failed| !failed.is_reader_gone()) {
///     eprintln!("{failed}"); // cannot write to stdout: No space left on device (os error 28)
/// }
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeeFailed {
    /// The child's stream. The target of [`Stdio::tee`](crate::Stdio::tee) is this process's stream of that name.
    pub source: Source,
    /// The kind of error; `TimedOut` if the run was stopped and the target did not accept the rest in time.
    pub kind: io::ErrorKind,
    /// The system's error number, if the system reported one.
    pub os_error: Option<i32>,
    /// True if the target is a handle, and not this process's stream of the same name.
    to_handle: bool,
}

impl TeeFailed {
    pub(crate) fn new(source: Source, to_handle: bool, error: &io::Error) -> TeeFailed {
        TeeFailed { source, kind: error.kind(), os_error: error.raw_os_error(), to_handle }
    }

    /// Returns true if the reader of the target is gone, as `head` is after its last line. Tools usually stop writing
    /// then, without an error.
    #[must_use]
    pub fn is_reader_gone(&self) -> bool {
        self.kind == io::ErrorKind::BrokenPipe
    }

    pub(crate) fn to_error(self) -> io::Error {
        match self.os_error {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::from(self.kind),
        }
    }
}

impl fmt::Display for TeeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TeeFailed { source, to_handle, .. } = self;
        match to_handle {
            true => write!(f, "cannot write {source} to its file or handle: ")?,
            false => write!(f, "cannot write to {source}: ")?,
        }
        write!(f, "{}", self.to_error())
    }
}

/// Both streams as bytes, with the fields of [`std::process::Output`] and more.
pub type Output = Captured<Vec<u8>>;

/// Both streams as text.
pub type Capture = Captured<String>;

/// The result of a run whose streams were not captured.
pub type Ending = Captured<()>;

impl<T> Captured<T> {
    /// Returns true if the child exited by itself with code 0 and this crate did not stop it.
    #[must_use]
    pub fn success(&self) -> bool {
        self.outcome == Outcome::Exited && self.status.success()
    }

    /// Drops the captured streams, and keeps the facts.
    #[must_use]
    pub fn into_ending(self) -> Ending {
        self.without_streams()
    }

    /// Drops the captured streams.
    pub(crate) fn without_streams(self) -> Ending {
        match self.try_map(|_, _| Ok::<(), std::convert::Infallible>(())) {
            Ok(ending) => ending,
            Err(never) => match never {},
        }
    }

    /// Converts the streams.
    pub(crate) fn try_map<U, E>(
        self,
        mut convert: impl FnMut(Source, T) -> Result<U, E>,
    ) -> Result<Captured<U>, E> {
        Ok(Captured {
            stdout: convert(Source::Stdout, self.stdout)?,
            stderr: convert(Source::Stderr, self.stderr)?,
            status: self.status,
            outcome: self.outcome,
            exceeded: self.exceeded,
            program: self.program,
            pid: self.pid,
            elapsed: self.elapsed,
            out_of_memory: self.out_of_memory,
            limits: self.limits,
            tree_usage: self.tree_usage,
            usage: self.usage,
            held_open: self.held_open,
            truncated: self.truncated,
            tee_failed: self.tee_failed,
            stdin_unread: self.stdin_unread,
            containment: self.containment,
            leftovers_killed: self.leftovers_killed,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
            stderr_merged: self.stderr_merged,
        })
    }
}

impl From<Output> for std::process::Output {
    fn from(output: Output) -> Self {
        std::process::Output {
            status: output.status.into(),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }
}
