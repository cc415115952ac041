//! The counters of a pool. Each event is counted before anyone who waits for it wakes up, so that a caller who has a
//! reply finds it in the [`PoolStats`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::status::PoolStats;

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        // The lock through which a caller gets its result orders this before the caller's look.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a pool, as in [`PoolStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) replies: Counter,
    pub(super) failures: Counter,
    pub(super) retries: Counter,
    pub(super) lost: Counter,
    pub(super) cancelled: Counter,
    pub(super) started: Counter,
    pub(super) failed_starts: Counter,
    pub(super) died: Counter,
    pub(super) retired: Counter,
}

impl Counters {
    /// Returns what was counted so far, without the workers.
    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            workers: Vec::new(),
            waiting: 0,
            replies: self.replies.get(),
            failures: self.failures.get(),
            retries: self.retries.get(),
            lost: self.lost.get(),
            cancelled: self.cancelled.get(),
            started: self.started.get(),
            failed_starts: self.failed_starts.get(),
            died: self.died.get(),
            retired: self.retired.get(),
        }
    }
}
