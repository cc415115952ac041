//! The counters of a pool. Each event is counted before its waiter wakes up, so that a caller who has a reply finds it in
//! the [`PoolStats`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::status::{PoolStats, WorkerState, WorkerStatus};

/// A counter that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        // Relaxed: the lock through which a caller gets its result orders this before the caller's read.
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
    /// Returns the counters, without the workers.
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

/// The state of a worker as of the driver's last wait, and its live counter.
#[derive(Debug)]
pub(super) struct WorkerSnapshot {
    pub(super) number: u64,
    pub(super) pid: u32,
    pub(super) state: WorkerState,
    pub(super) jobs: Arc<Counter>,
    pub(super) shared_memory: bool,
    pub(super) fallback: Option<Arc<str>>,
}

impl WorkerSnapshot {
    pub(super) fn status(&self) -> WorkerStatus {
        WorkerStatus {
            number: self.number,
            pid: self.pid,
            state: self.state,
            jobs: self.jobs.get(),
            shared_memory: self.shared_memory,
            fallback: self.fallback.clone(),
        }
    }
}
