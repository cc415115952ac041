//! The rules of a run as plain data, set on a command or a pipeline before the start.

use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::signal::Signal;

use crate::cancel::CancelToken;

/// The rules of a run: when and how it is stopped, and how long its streams are read.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) kill_grace: Duration,
    pub(crate) stop_signal: Signal,
    pub(crate) linger: Linger,
    /// Drains a stream that the run has given up.
    pub(crate) linger_drain: Option<fn(PipeReader)>,
    /// Delays reads even of streams that somebody watches.
    pub(crate) coalesce_reads: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            timeout: None,
            deadline: None,
            idle_timeout: None,
            cancel: None,
            kill_grace: Duration::from_secs(5),
            stop_signal: Signal::TERM,
            linger: Linger::default(),
            linger_drain: None,
            coalesce_reads: false,
        }
    }
}

impl Rules {
    /// Returns the stop signal of the cancel, if it came with one, and otherwise that of the command.
    pub(crate) fn effective_stop_signal(&self) -> Signal {
        self.cancel.as_ref().and_then(CancelToken::signal).unwrap_or(self.stop_signal)
    }

    /// Returns true if anything but the child itself can end the run.
    pub(crate) fn can_stop(&self) -> bool {
        self.timeout.is_some()
            || self.deadline.is_some()
            || self.idle_timeout.is_some()
            || self.cancel.is_some()
    }
}

/// Limits how much of each stream is kept.
///
/// Beyond the limit the pipes are still drained, so the child never blocks on them. Memory stays bounded: by the limit
/// plus 64 KiB for [`keep_head`](Limit::keep_head) and [`fail`](Limit::fail), by twice the limit plus 64 KiB for
/// [`keep_tail`](Limit::keep_tail).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(crate) bytes: usize,
    pub(crate) on_exceed: OnExceed,
    /// Keeps nothing. The stream is counted, and copied to its tee if it has one.
    pub(crate) only_counts: bool,
}

/// The reaction to a stream that exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OnExceed {
    Fail,
    KeepHead,
    KeepTail,
}

impl Limit {
    /// Stops the child as soon as a stream exceeds this many bytes. The outcome is then
    /// [`LimitExceeded`](crate::Outcome::LimitExceeded), and the result contains the bytes up to the limit.
    #[must_use]
    pub const fn fail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::Fail, only_counts: false }
    }

    /// Keeps the first `bytes` bytes of each stream.
    #[must_use]
    pub const fn keep_head(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepHead, only_counts: false }
    }

    /// Keeps the last `bytes` bytes of each stream.
    #[must_use]
    pub const fn keep_tail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepTail, only_counts: false }
    }

    /// Returns the same limit, which counts the bytes that pass through and keeps none. If the reader of a tee is gone,
    /// nobody wants the stream any more, so it is closed: the child gets the SIGPIPE that it would have got from that
    /// reader.
    #[doc(hidden)]
    #[must_use]
    pub const fn count_only(self) -> Limit {
        Limit { only_counts: true, ..self }
    }
}

/// The rule for reading on after the child has ended, if something else still holds one of its streams open: a daemon
/// that it started, a build server, a shell's background job.
///
/// Bytes that are already in the pipe are always read. If a stream is still held when reading ends, the result has
/// [`held_open`](crate::Captured::held_open) set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linger {
    /// Reads until the last holder closes the stream, or until the command's timeout.
    UntilEof,
    /// Reads until nothing has arrived for `quiet`, but no longer than `cap`. Every chunk restarts `quiet`. This is the
    /// default, with 250 ms and 5 s.
    Settle {
        /// The time without output after which reading ends.
        quiet: Duration,
        /// The time after which reading ends in any case.
        cap: Duration,
    },
    /// Reads the bytes that are in the pipe when the child ends, and no more.
    StopAtExit,
}

impl Default for Linger {
    fn default() -> Linger {
        Linger::Settle { quiet: Duration::from_millis(250), cap: Duration::from_secs(5) }
    }
}
