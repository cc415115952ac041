//! New jobs: what is refused, and what they wait for.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::mem;

use super::Scheduler;
use super::event::{Cause, Decision, JobEnd, JobNumber};
use super::job::{Job, Spec, State};
use super::limits::NeedsError;
use super::names::Holder;
use super::text::Shown;
use crate::vocabulary::JobOutcome;

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
