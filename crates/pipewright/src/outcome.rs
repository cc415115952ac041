//! The reason why a run ended, and the stream or limit concerned: plain data that errors and results share.

use std::fmt;
use std::time::Duration;

use pipewright_os::process::limits::OutOfMemory;

/// One of a child's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The reason why a run ended. Prints as a few words, without the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The child exited by itself, with any code.
    Exited,
    /// A signal killed the child, and no timeout, limit or cancel had sent it: for example the signal of
    /// [`Child::kill`](crate::Child::kill), or of another process.
    Signaled,
    /// The timeout or the deadline expired, and the child was stopped.
    TimedOut,
    /// The child wrote nothing for too long, and was stopped.
    IdleTimedOut,
    /// The run was cancelled, and the child was stopped.
    Cancelled,
    /// A stream exceeded [`Limit::fail`](crate::Limit::fail), and the child was stopped.
    LimitExceeded,
    /// The kernel killed a process of the tree for lack of memory. That was the child, or a descendant while the child
    /// may have exited with any code, which is in the status. Only for a command with
    /// [`limits`](crate::Command::limits).
    OutOfMemory(OutOfMemory),
}

/// The limit that a run exceeded, so that it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The time from the start: [`Command::timeout`](crate::Command::timeout), or the time that was left until the
    /// [`deadline`](crate::Command::deadline).
    Time(Duration),
    /// The time without output: [`Command::idle_timeout`](crate::Command::idle_timeout).
    Silence(Duration),
    /// The number of bytes of a stream: [`Limit::fail`](crate::Limit::fail).
    Bytes(usize),
}

impl Outcome {
    /// Returns the word for this outcome in reports, in the log of a batch and in Python: `exited`, `signaled`,
    /// `timed_out`, `idle_timed_out`, `cancelled`, `limit_exceeded`, `out_of_memory`. A word never changes.
    ///
    /// ```
    /// let done = pipewright::Command::new("true").output()?;
    /// assert_eq!(done.outcome.name(), "exited");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Exited => "exited",
            Outcome::Signaled => "signaled",
            Outcome::TimedOut => "timed_out",
            Outcome::IdleTimedOut => "idle_timed_out",
            Outcome::Cancelled => "cancelled",
            Outcome::LimitExceeded => "limit_exceeded",
            Outcome::OutOfMemory(_) => "out_of_memory",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Stdout => "stdout",
            Source::Stderr => "stderr",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Exited => "exited",
            Outcome::Signaled => "killed by a signal",
            Outcome::TimedOut => "timed out",
            Outcome::IdleTimedOut => "timed out without output",
            Outcome::Cancelled => "cancelled",
            Outcome::LimitExceeded => "exceeded its output limit",
            Outcome::OutOfMemory(_) => "out of memory",
        })
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exceeded::Time(limit) => write!(f, "timed out after {:?}", readable(*limit)),
            Exceeded::Silence(limit) => write!(f, "timed out after {limit:?} without output"),
            Exceeded::Bytes(1) => f.write_str("exceeded its output limit of 1 byte"),
            Exceeded::Bytes(limit) => write!(f, "exceeded its output limit of {limit} bytes"),
        }
    }
}

/// Rounds down to milliseconds, or to microseconds below a second: the time until a deadline has nanoseconds.
fn readable(limit: Duration) -> Duration {
    let unit = match limit.as_nanos() {
        1_000_000_000.. => 1_000_000,
        1_000.. => 1_000,
        _ => 1,
    };
    Duration::new(limit.as_secs(), limit.subsec_nanos() / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_a_deadline_prints_without_nanoseconds() {
        let shown = |nanos| Exceeded::Time(Duration::from_nanos(nanos)).to_string();
        assert_eq!(shown(1_999_823_267), "timed out after 1.999s");
        assert_eq!(shown(199_823_267), "timed out after 199.823ms");
        assert_eq!(shown(1_250_000_000), "timed out after 1.25s");
        assert_eq!(shown(50), "timed out after 50ns");
        let most = Exceeded::Time(Duration::MAX).to_string();
        assert!(most.starts_with("timed out after 18446744073709551615."), "{most}");
    }
}
