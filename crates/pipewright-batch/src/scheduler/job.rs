//! Jobs as the scheduler sees them: the input, and the state of an unfinished one.

use super::event::{Cause, JobEnd, JobNumber};
use super::limits::Needs;
use super::names::NameId;
use super::ready::ShapeId;
use super::waiters::Waiters;
use crate::vocabulary::{Failure, JobOutcome};

/// Properties of a job that decide when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The name that others use in `after`.
    pub(crate) name: Option<Box<str>>,
    /// Names of the jobs that have to succeed first. They may be added later.
    pub(crate) after: Vec<Box<str>>,
    pub(crate) needs: Needs,
    /// Memory up to which the job is tried again when it ran out of memory. `None`: as much as it needs.
    pub(crate) most_memory_bytes: Option<u64>,
    /// Attempts after the first one.
    pub(crate) retries: u32,
    /// Runs at most once: it starts only when the log holds its intent durably, and not again if nobody knows how it ended.
    pub(crate) once: bool,
    /// The end that the log of an earlier run has. Such a job is settled at once.
    pub(crate) past: Option<JobEnd>,
}

/// A job that is not settled.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) state: State,
    pub(super) name: Option<NameId>,
    /// Jobs that have this one in their `after`.
    pub(super) waiters: Waiters,
    pub(super) shape: ShapeId,
    pub(super) most_memory_bytes: Option<u64>,
    /// Attempts that were admitted.
    pub(super) attempts: u32,
    pub(super) retries_left: u32,
    /// Retries that were decided.
    pub(super) retries: u32,
    /// Attempts that were lost with their executor.
    pub(super) lost: u32,
    pub(super) once: bool,
    pub(super) last: Option<Attempt>,
}

/// The state of an unfinished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was added just now, or ended just now.
    Undecided,
    /// It was added with the end of an earlier run.
    Past,
    /// It waits for that many jobs.
    Blocked(usize),
    Ready,
    /// It has its slot and its resources, and waits until its intent is durable.
    Admitted {
        slot: u32,
    },
    Running {
        slot: u32,
        /// The position among all starts.
        since: u64,
        stop: Option<StopReason>,
    },
    /// It waits for its retry.
    Retrying,
}

/// The reason why a running attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Memory is short: the job is queued again.
    Pressure,
    /// The batch ends early.
    End,
}

/// The end of an earlier attempt of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Failed(Failure),
    Shed,
}

impl Job {
    /// Returns the end if no attempt follows.
    pub(super) fn end_without_another_attempt(&self) -> JobEnd {
        match self.last {
            None => JobOutcome::NotRun.into(),
            Some(Attempt::Failed(failure)) => {
                before_another_attempt(failure, self.once, self.retries > 0)
            }
            Some(Attempt::Shed) => JobOutcome::Stopped.into(),
        }
    }
}

/// Returns the end of a job that has failed so, whose next attempt is due when the batch ends: a resumed one goes on. A
/// `once` job does so only if it has not begun, in an earlier attempt either.
pub(super) fn before_another_attempt(failure: Failure, once: bool, is_retried: bool) -> JobEnd {
    match once && (failure != Failure::StartFailed || is_retried) {
        true => Cause::Failure(failure).into(),
        false => JobOutcome::Stopped.into(),
    }
}

/// A job and its end, before its dependents have heard of it.
pub(super) type Settled = (JobNumber, JobEnd);
