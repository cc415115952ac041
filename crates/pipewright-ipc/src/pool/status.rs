//! The state and the counters of a pool.

use std::sync::Arc;

/// The state and the counters of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// The current workers.
    pub workers: Vec<WorkerStatus>,
    /// Calls that wait for a worker.
    pub waiting: usize,
    /// Calls that got a reply.
    pub replies: u64,
    /// Calls that the worker reported as failed.
    pub failures: u64,
    /// Retries: calls given to another worker after theirs was lost.
    pub retries: u64,
    /// Calls that ended with [`Lost`](crate::ErrorKind::Lost).
    pub lost: u64,
    /// Calls that were cancelled or timed out.
    pub cancelled: u64,
    /// Workers that were started.
    pub started: u64,
    /// Starts that failed.
    pub failed_starts: u64,
    /// Workers that ended unexpectedly: they crashed or exited, violated the protocol, or did not end a cancelled call.
    pub died: u64,
    /// Workers that the pool ended because they were idle for too long or were replaced.
    pub retired: u64,
}

/// The state of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker's number in the pool, from 1.
    pub number: u64,
    /// Its process id.
    pub pid: u32,
    /// The current state.
    pub state: WorkerState,
    /// Calls that it has answered, with a reply or an error.
    pub jobs: u64,
    /// True if shared memory is in use. False until the handshake is complete.
    pub shared_memory: bool,
    /// The reason why shared memory is not in use although the pool's options allow it, as in
    /// [`Stats`](crate::Stats::fallback).
    pub fallback: Option<Arc<str>>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// Has started, and has not completed the handshake.
    Starting,
    /// Waits for a call.
    Idle,
    /// Handles calls.
    Busy,
    /// Resets its state.
    Resetting,
    /// Is about to end: the pool retires it, or its connection has failed.
    Leaving,
}
