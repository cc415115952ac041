//! New jobs and what they wait for: a job as the scheduler sees it, its addition, and the end of the input, which tells
//! of names that nobody has and of cycles.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::mem;
use std::sync::Arc;

use super::Scheduler;
use super::admission::{Needs, NeedsError, ShapeId};
use super::event::{Cause, Decision, JobEnd, JobNumber, Refusal, Shown};
use super::names::{self, Holder, NameId, Names, Waiters};
use crate::vocabulary::{Failure, JobOutcome};

/// A job that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddError {
    /// Numbers have to grow.
    Order { job: JobNumber, last: JobNumber },
    /// The end of the input was reported before.
    InputEnded,
    /// Another job has the name.
    DuplicateName { name: Box<str>, first: JobNumber },
    /// It can never run here.
    Needs(NeedsError),
}

impl Display for AddError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AddError::Order { job, last } => {
                write!(f, "job {} was added after job {}: add jobs in order", job.0, last.0)
            }
            AddError::InputEnded => write!(f, "a job was added after the end of the input"),
            AddError::DuplicateName { name, first } => {
                let name = Shown(name);
                write!(f, "job {} is named {name}, too: give each job a name of its own", first.0)
            }
            AddError::Needs(_) => write!(f, "the job can never run"),
        }
    }
}

impl Error for AddError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AddError::Needs(error) => Some(error),
            _ => None,
        }
    }
}

impl Scheduler {
    pub(super) fn insert(
        &mut self,
        number: JobNumber,
        spec: Spec,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), AddError> {
        if let Some(last) = self.last_added.filter(|last| *last >= number) {
            return Err(AddError::Order { job: number, last });
        }
        if self.input_ended {
            return Err(AddError::InputEnded);
        }
        // A job that ended in an earlier run needs nothing, even if this machine is smaller.
        let needs = match spec.past {
            Some(_) => spec.needs,
            None => self.config.limits.check(spec.needs).map_err(AddError::Needs)?,
        };
        let (name, waiters) = match (&mut self.names, &spec.name) {
            (Some(names), Some(name)) => {
                let defined = names.define(name, number);
                let (id, waiters) = defined
                    .map_err(|first| AddError::DuplicateName { name: name.clone(), first })?;
                (Some(id), waiters)
            }
            _ => Default::default(),
        };
        self.last_added = Some(number);
        self.tally.added += u64::from(spec.past.is_none());
        let job = Job {
            state: if spec.past.is_some() { State::Past } else { State::Undecided },
            name,
            waiters,
            shape: self.ready.shape(needs),
            most_memory_bytes: spec.most_memory_bytes,
            attempts: 0,
            retries_left: spec.retries,
            retries: 0,
            lost: 0,
            once: spec.once,
            last: None,
        };
        self.jobs.insert(number, job);
        let end: Option<JobEnd> = match spec.past {
            Some(past) => Some(past),
            None if self.halted.is_some() => Some(JobOutcome::NotRun.into()),
            None => self.failed_among(&spec.after).map(|cause| Cause::After(cause).into()),
        };
        match end {
            Some(end) => self.settle(number, end, decisions),
            None => self.wait_for(number, &spec.after),
        }
        Ok(())
    }

    fn failed_among(&self, after: &[Box<str>]) -> Option<JobNumber> {
        let names = self.names.as_ref()?;
        after.iter().find_map(|name| names.failed(name))
    }

    /// Blocks a job until all jobs with these names have succeeded. A name may occur twice.
    fn wait_for(&mut self, number: JobNumber, after: &[Box<str>]) {
        let mut unmet = 0;
        for name in after {
            let Some(names) = &mut self.names else { break };
            match names.look_up(name) {
                (_, Holder::Succeeded(_) | Holder::Failed(_)) => continue,
                (id, Holder::Awaited) => {
                    names.awaited(id).push(number, |job| self.jobs.contains_key(&job));
                }
                (_, Holder::Unfinished(awaited)) => {
                    let Some(job) = self.jobs.get_mut(&awaited) else { continue };
                    let mut waiters = mem::take(&mut job.waiters);
                    waiters.push(number, |job| self.jobs.contains_key(&job));
                    if let Some(job) = self.jobs.get_mut(&awaited) {
                        job.waiters = waiters;
                    }
                }
            }
            unmet += 1;
        }
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if unmet > 0 {
            job.state = State::Blocked(unmet);
            self.blocked += 1;
        } else {
            job.state = State::Ready;
            self.ready.push(number, job.shape);
        }
    }
}

// Jobs as the scheduler sees them: the input, and the state of an unfinished one.

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
    /// Runs at most once: it starts only when the log holds its intent durably, and not again if nobody knows how it
    /// ended.
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

// The end of the input: names that no job has, and cycles.
//
// Both are found here and not when nothing runs any more: no later job can change them, the user learns of them early,
// and the names can be forgotten.

impl Scheduler {
    pub(super) fn end_input(&mut self, decisions: &mut Vec<Decision>) {
        if self.input_ended {
            return;
        }
        self.input_ended = true;
        self.tally.total = Some(self.tally.added);
        let Some(names) = self.names.take() else { return };
        // A job that waits for an unknown name and for a refused job is refused, too: all first causes come first.
        for (name, waiters) in names.all_awaited() {
            let unknown = || Cause::Refusal(Refusal::UnknownAfter { name: name.into() });
            self.settled.extend(waiters.iter().map(|job| (job, unknown().into())));
        }
        self.settle_all(decisions);
        if self.blocked > 0 {
            self.refuse_cycles(&names);
            self.settle_all(decisions);
        }
    }

    fn refuse_cycles(&mut self, names: &Names) {
        let is_blocked = |state| matches!(state, State::Blocked(_));
        let jobs = self.jobs.iter().filter(|(_, job)| is_blocked(job.state));
        let mut blocked: Vec<JobNumber> = jobs.map(|(number, _)| *number).collect();
        blocked.sort_unstable();
        let mut edges = Vec::new();
        for (awaited, number) in blocked.iter().enumerate() {
            let waiters = self.jobs.get(number).map(|job| job.waiters.iter());
            let waiting = waiters.into_iter().flatten();
            let waiting = waiting.filter_map(|waiter| blocked.binary_search(&waiter).ok());
            edges.extend(waiting.map(|waiting| (waiting, awaited)));
        }
        for cycle in names::cycles(blocked.len(), &edges) {
            let name = |job: &usize| {
                let id = self.jobs.get(&blocked[*job]).and_then(|job| job.name);
                // A job that another one waits for has a name.
                id.map(|id| names.text(id)).unwrap_or_default().into()
            };
            let cycle_names: Arc<[Box<str>]> = cycle.iter().map(name).collect();
            let refused = cycle.iter().map(|job| {
                let names = Arc::clone(&cycle_names);
                (blocked[*job], Cause::Refusal(Refusal::Cycle { names }).into())
            });
            self.settled.extend(refused);
        }
    }
}
