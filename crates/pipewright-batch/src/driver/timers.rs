//! Timers of a driver.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::scheduler::JobNumber;

/// Something that becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The delay of a job's retry is over.
    Retry(JobNumber),
    /// The time of the whole batch is over.
    BatchTimeout,
    /// The log has failed for too long.
    LogTimeout,
    /// The memory of the machine has to be looked at.
    Memory,
}

/// All timers, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Instant, Timer)>>);

impl Timers {
    pub(super) fn push(&mut self, at: Instant, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    pub(super) fn extend(&mut self, timers: impl IntoIterator<Item = (Instant, Timer)>) {
        self.0.extend(timers.into_iter().map(Reverse));
    }

    /// Returns the time of the next one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse((_, timer))| timer)
    }
}
