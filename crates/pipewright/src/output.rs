//! What a run gives.

mod check;
mod show;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright_os::process::child::Containment;
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::Usage;

pub(crate) use check::{CapturedStream, TAIL_BYTES, check_tee, judge};

use crate::outcome::{Exceeded, Outcome, Source};

/// What a child wrote, as bytes ([`Output`]) or as text ([`Capture`]), and everything else there
/// is to know about its run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Captured<T> {
    /// How the child ended.
    #[doc(alias = "exit_code")]
    pub status: ExitStatus,
    /// What it wrote to stdout, where that was captured.
    pub stdout: T,
    /// What it wrote to stderr, where that was captured.
    pub stderr: T,
    /// Why the run ended.
    #[doc(alias = "timed_out")]
    pub outcome: Outcome,
    /// The limit that it exceeded; `None` where the outcome is none of a limit.
    pub exceeded: Option<Exceeded>,
    /// The program, as it was given. Of a pipeline: that of the stage that decided, or of all where all were stopped.
    pub program: OsString,
    /// The process id that it had.
    pub pid: u32,
    /// The time from the start to the end of the child and of its output.
    #[doc(alias = "duration")]
    pub elapsed: Duration,
    /// CPU time and memory; `None` where other code of this program reaped the child.
    pub usage: Option<Usage>,
    /// The child had ended and something else still held one of its streams open: there may be
    /// output that came too late. See [`Linger`](crate::Linger).
    pub held_open: bool,
    /// A [`Limit`](crate::Limit) left part of a stream out.
    pub truncated: bool,
    /// Our own stream did not take what [`Stdio::tee`](crate::Stdio::tee) passed on to it. What is
    /// captured is whole all the same.
    pub tee_failed: Option<TeeFailed>,
    /// How many bytes of the input the child did not take.
    pub stdin_unread: u64,
    /// How the child was held.
    pub containment: Containment,
    /// How many processes the child had started and left running were killed; none where its tree
    /// is not held ([`Contain::Tree`](crate::Contain::Tree)).
    pub leftovers_killed: u32,
    /// How many bytes stdout carried, kept or not; `None` where it did not pass through us.
    pub stdout_bytes: Option<u64>,
    /// How many bytes stderr carried, kept or not; `None` where it did not pass through us.
    pub stderr_bytes: Option<u64>,
}

/// Why one of our own streams did not take what was passed on to it.
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
    /// Our stream.
    pub source: Source,
    /// What kind of error; `TimedOut` where the run was stopped and the stream did not take what
    /// was left.
    pub kind: io::ErrorKind,
    /// The system's error number, if the system reported one.
    pub os_error: Option<i32>,
}

impl TeeFailed {
    pub(crate) fn new(source: Source, error: &io::Error) -> TeeFailed {
        TeeFailed { source, kind: error.kind(), os_error: error.raw_os_error() }
    }

    /// Whether whoever read our stream has gone, as `head` does: tools just stop writing then.
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
        write!(f, "cannot write to {}: {}", self.source, self.to_error())
    }
}

/// Both streams as bytes. It has the fields of [`std::process::Output`], and more.
pub type Output = Captured<Vec<u8>>;

/// Both streams as text.
pub type Capture = Captured<String>;

/// How a child ended whose streams went elsewhere.
pub type Ending = Captured<()>;

impl<T> Captured<T> {
    /// Whether the child exited by itself with code 0, and was not stopped by us.
    #[must_use]
    pub fn success(&self) -> bool {
        self.outcome == Outcome::Exited && self.status.success()
    }

    /// The same without what was captured.
    pub(crate) fn without_streams(self) -> Ending {
        match self.try_map(|_, _| Ok::<(), std::convert::Infallible>(())) {
            Ok(ending) => ending,
            Err(never) => match never {},
        }
    }

    /// The same with its streams turned into something else.
    pub(crate) fn try_map<U, E>(
        self,
        mut turn: impl FnMut(Source, T) -> Result<U, E>,
    ) -> Result<Captured<U>, E> {
        Ok(Captured {
            stdout: turn(Source::Stdout, self.stdout)?,
            stderr: turn(Source::Stderr, self.stderr)?,
            status: self.status,
            outcome: self.outcome,
            exceeded: self.exceeded,
            program: self.program,
            pid: self.pid,
            elapsed: self.elapsed,
            usage: self.usage,
            held_open: self.held_open,
            truncated: self.truncated,
            tee_failed: self.tee_failed,
            stdin_unread: self.stdin_unread,
            containment: self.containment,
            leftovers_killed: self.leftovers_killed,
            stdout_bytes: self.stdout_bytes,
            stderr_bytes: self.stderr_bytes,
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
