//! The end of an attempt.

use std::fmt;
use std::time::{Duration, SystemTime};

use pipewright::Signal;
use pipewright_os::base::error::OneLine;

use super::AttemptKey;

/// The end of an attempt, with everything that is known about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttemptEnd {
    /// The attempt.
    pub key: AttemptKey,
    /// The result.
    pub outcome: AttemptOutcome,
    /// The time of the start, by the clock of the system.
    pub started: SystemTime,
    /// The time from the start until its processes and its output had ended.
    pub elapsed: Duration,
    /// CPU time in user mode.
    pub user: Option<Duration>,
    /// CPU time in the kernel.
    pub system: Option<Duration>,
    /// The largest amount of memory in use at one time, in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The number of bytes written to stdout.
    pub stdout_bytes: u64,
    /// The number of bytes written to stderr.
    pub stderr_bytes: u64,
    /// True if part of the output was dropped, because of a limit or of an error.
    pub output_truncated: bool,
    /// The number of processes that it left running, and that were killed.
    pub leftovers_killed: u32,
    /// The node that it ran on. `None`: this machine, or none.
    pub node: Option<String>,
}

impl AttemptEnd {
    /// Returns the end of an attempt that has never run.
    #[must_use]
    pub fn without_run(key: AttemptKey, outcome: AttemptOutcome) -> AttemptEnd {
        AttemptEnd::new(key, outcome, SystemTime::now(), Duration::ZERO)
    }

    /// Returns an end without usage and output.
    #[must_use]
    pub fn new(
        key: AttemptKey,
        outcome: AttemptOutcome,
        started: SystemTime,
        elapsed: Duration,
    ) -> AttemptEnd {
        AttemptEnd {
            key,
            outcome,
            started,
            elapsed,
            user: None,
            system: None,
            peak_rss_bytes: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            output_truncated: false,
            leftovers_killed: 0,
            node: None,
        }
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It exited by itself with this code.
    Exited(i32),
    /// A signal killed it, and the batch had not sent that signal.
    Signaled(i32),
    /// It was stopped after its timeout.
    TimedOut,
    /// It was stopped after a time without output.
    IdleTimedOut,
    /// It was stopped because it wrote too much.
    LimitExceeded,
    /// It was stopped for another reason: a drain, a stop, a lack of memory.
    Cancelled,
    /// It was killed because memory ran out.
    OutOfMemory,
    /// It could not be started. The text is one line, and states the reason.
    NotStarted(String),
    /// Its executor lost it: it may have run to its end, or not.
    Lost(String),
}

impl AttemptOutcome {
    /// Returns true if the command may have ended so because somebody else than the batch has told it to.
    pub(crate) fn may_be_told_to_end(&self) -> bool {
        matches!(self, AttemptOutcome::Signaled(_))
            || matches!(self, AttemptOutcome::Exited(code) if *code != 0)
    }

    /// Returns the word that the log, events and reports use.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            AttemptOutcome::Exited(_) => "exited",
            AttemptOutcome::Signaled(_) => "signaled",
            AttemptOutcome::TimedOut => "timed_out",
            AttemptOutcome::IdleTimedOut => "idle_timed_out",
            AttemptOutcome::LimitExceeded => "limit_exceeded",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::OutOfMemory => "out_of_memory",
            AttemptOutcome::NotStarted(_) => "not_started",
            AttemptOutcome::Lost(_) => "lost",
        }
    }

    /// Returns true if it exited by itself with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == AttemptOutcome::Exited(0)
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptOutcome::Exited(code) => write!(f, "exit code {code}"),
            AttemptOutcome::Signaled(number) => match Signal::from_number(*number) {
                Some(signal) => write!(f, "killed by {signal}"),
                None => write!(f, "killed by signal {number}"),
            },
            AttemptOutcome::TimedOut => f.write_str("timed out"),
            AttemptOutcome::IdleTimedOut => f.write_str("timed out without output"),
            AttemptOutcome::LimitExceeded => f.write_str("exceeded its output limit"),
            AttemptOutcome::Cancelled => f.write_str("stopped"),
            AttemptOutcome::OutOfMemory => f.write_str("out of memory"),
            AttemptOutcome::NotStarted(reason) => write!(f, "{}", OneLine(reason)),
            AttemptOutcome::Lost(reason) => write!(f, "lost: {}", OneLine(reason)),
        }
    }
}
