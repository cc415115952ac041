//! How much output is kept, and how long it is waited for.

use std::time::Duration;

/// How much of each stream is kept.
///
/// Past the limit the pipes are still drained, so the child never blocks on them, and memory stays
/// bounded: by the limit for [`keep_head`](Limit::keep_head) and [`fail`](Limit::fail), by twice
/// the limit for [`keep_tail`](Limit::keep_tail), and 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    pub(crate) bytes: usize,
    pub(crate) on_exceed: OnExceed,
    /// Nothing is kept: the stream is counted, and passed on where it is a tee.
    pub(crate) only_counts: bool,
}

/// What happens past a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OnExceed {
    Fail,
    KeepHead,
    KeepTail,
}

impl Limit {
    /// Stops the child as soon as a stream carries more than that many bytes; the outcome is then
    /// [`LimitExceeded`](crate::Outcome::LimitExceeded), and what was kept is there.
    #[must_use]
    pub const fn fail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::Fail, only_counts: false }
    }

    /// Keeps the first so many bytes of each stream.
    #[must_use]
    pub const fn keep_head(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepHead, only_counts: false }
    }

    /// Keeps the last so many bytes of each stream.
    #[must_use]
    pub const fn keep_tail(bytes: usize) -> Limit {
        Limit { bytes, on_exceed: OnExceed::KeepTail, only_counts: false }
    }

    /// The same where nothing is to be kept of what passes through: it only counts. Where a tee's reader has gone
    /// then, nobody wants the stream any more, and it is closed: the child gets the SIGPIPE that it would have got
    /// from that reader.
    #[doc(hidden)]
    #[must_use]
    pub const fn that_only_counts(self) -> Limit {
        Limit { only_counts: true, ..self }
    }
}

/// What happens when the child has ended and something else still holds one of its streams open:
/// a daemon that it started, a build server, a shell's background job.
///
/// What is in the pipe already is always read. `held_open` in the result says that it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linger {
    /// Reads until the last holder closes the stream, or the command's timeout.
    UntilEof,
    /// Reads until nothing has come for `quiet`, which starts anew with every chunk, but not
    /// longer than `cap`. The default, with 250 ms and 5 s.
    Settle {
        /// How long nothing may come.
        quiet: Duration,
        /// How long it may go on.
        cap: Duration,
    },
    /// Reads what is there when the child ends, and no more.
    StopAtExit,
}

impl Default for Linger {
    fn default() -> Linger {
        Linger::Settle { quiet: Duration::from_millis(250), cap: Duration::from_secs(5) }
    }
}
