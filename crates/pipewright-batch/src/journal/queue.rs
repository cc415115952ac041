//! The queue between the driver and the thread that writes, and the reports that come back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Report;
use super::changes::Changes;

/// The memory of waiting changes from which on the driver waits for the disk.
const MOST_BYTES: usize = 8 << 20;

/// The queue. The driver puts changes in, the writer takes all of them at once.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Work for the writer: changes, or the end.
    work: Condvar,
    /// Progress for the driver: room, a commit, or a failure.
    progress: Condvar,
    waker: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    pending: Changes,
    /// Groups that were put in, and those of them that are durable.
    put: u64,
    durable: u64,
    taken: u64,
    reports: VecDeque<Report>,
    failing: bool,
    closing: bool,
    writer_ended: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The result of a wait for the disk.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    Durable,
    Failing,
    WriterEnded,
}

impl Queue {
    pub(super) fn new(waker: Box<dyn Fn() + Send + Sync>) -> Queue {
        let (state, work, progress) = Default::default();
        Queue { state, work, progress, waker }
    }

    /// Puts changes in. Waits while too much is pending, unless the log fails: then the jobs that run are the bound.
    pub(super) fn put(&self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.pending.bytes() >= MOST_BYTES && !state.failing && !state.writer_ended {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.pending.append(changes);
        state.put += 1;
        drop(state);
        self.work.notify_one();
    }

    /// Waits until everything is durable, or the log fails.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Flushed {
        let mut state = self.lock();
        let until = state.put;
        loop {
            if state.durable >= until {
                return Flushed::Durable;
            }
            if state.writer_ended {
                return Flushed::WriterEnded;
            }
            if state.failing {
                return Flushed::Failing;
            }
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn next_report(&self) -> Option<Report> {
        self.lock().reports.pop_front()
    }

    /// Returns true if the log fails, and more is pending than would be accepted otherwise.
    pub(super) fn is_overdue(&self) -> bool {
        let state = self.lock();
        state.failing && state.pending.bytes() >= MOST_BYTES
    }

    /// Returns true if the next [`put`](Queue::put) waits.
    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        !state.failing && state.pending.bytes() >= MOST_BYTES
    }

    /// Tells the writer to end.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Waits for changes, and takes all. `None`: there are none, and the writer is to end.
    pub(super) fn take(&self) -> Option<Changes> {
        let mut state = self.lock();
        while state.pending.is_empty() && !state.closing {
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.pending.is_empty()).then(|| state.take())
    }

    /// Waits for that time, or until the writer is to end. Returns what was put in meanwhile.
    pub(super) fn take_after(&self, wait: Duration) -> Changes {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        while !state.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.work.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.take()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Reports results of the writer to the driver. `owes`: some of the changes that were taken are not durable.
    pub(super) fn report(&self, reports: Vec<Report>, owes: bool) {
        let mut state = self.lock();
        if !owes {
            state.durable = state.taken;
        }
        for report in &reports {
            match report {
                Report::Failed(_) => state.failing = true,
                Report::Works => state.failing = false,
                Report::Durable(_) => {}
            }
        }
        let is_news = !reports.is_empty();
        state.reports.extend(reports);
        drop(state);
        self.progress.notify_all();
        if is_news {
            (self.waker)();
        }
    }

    /// Notes that the writer has ended, so that nobody waits for it.
    pub(super) fn end_writer(&self) {
        self.lock().writer_ended = true;
        self.progress.notify_all();
        (self.waker)();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before anything that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Changes {
        self.taken = self.put;
        std::mem::take(&mut self.pending)
    }
}
