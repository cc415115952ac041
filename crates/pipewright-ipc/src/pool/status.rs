//! How a pool stands.

use std::sync::Arc;

use super::counters::Counter;

/// How a pool stands, and what it has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// The workers that there are.
    pub workers: Vec<WorkerStatus>,
    /// Calls that wait for a worker.
    pub waiting: usize,
    /// Calls that were answered.
    pub replies: u64,
    /// Calls that the worker could not do, and said so.
    pub failures: u64,
    /// Calls that were given to another worker after theirs was lost.
    pub retries: u64,
    /// Calls that were lost with their worker.
    pub lost: u64,
    /// Calls that nobody wanted any more: cancelled, or out of time.
    pub cancelled: u64,
    /// Workers that were started.
    pub started: u64,
    /// Starts in vain.
    pub failed_starts: u64,
    /// Workers that were lost: they ended by themselves, broke the protocol, or did not end a call.
    pub died: u64,
    /// Workers that were let go, or replaced.
    pub retired: u64,
}

/// One worker of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Which one, counted from 1.
    pub number: u64,
    /// Its process id.
    pub pid: u32,
    /// What it does.
    pub state: WorkerState,
    /// Calls that it has answered.
    pub jobs: u64,
    /// Whether shared memory is used between it and the pool. Not before it has said who it is.
    pub shared_memory: bool,
    /// Why it is not used, though it was not switched off; as in [`Stats`](crate::Stats::fallback).
    pub fallback: Option<Arc<str>>,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// It has been started, and has not said yet who it is.
    Starting,
    /// Nothing.
    Idle,
    /// Answers calls.
    Busy,
    /// Becomes as if it had just been started.
    Resetting,
    /// Ends.
    Leaving,
}

/// A worker as the driver last saw it, with the counter that goes on meanwhile.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) number: u64,
    pub(super) pid: u32,
    pub(super) state: WorkerState,
    pub(super) jobs: Arc<Counter>,
    pub(super) shared_memory: bool,
    pub(super) fallback: Option<Arc<str>>,
}

impl Standing {
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
