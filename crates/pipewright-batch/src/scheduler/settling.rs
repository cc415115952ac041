//! Ends: a job is settled, and its dependents are freed or skipped, without recursion.

use super::Scheduler;
use super::event::{Cause, Decision, JobEnd, JobNumber};
use super::job::State;
use super::names::Holder;
use super::waiters::Waiters;
use crate::vocabulary::JobOutcome;

impl Scheduler {
    pub(super) fn settle(&mut self, job: JobNumber, end: JobEnd, decisions: &mut Vec<Decision>) {
        self.settled.push_back((job, end));
        self.settle_all(decisions);
    }

    /// Settles the jobs of `self.settled`, and those that follow from them. A job that is in there twice gets its first
    /// end.
    pub(super) fn settle_all(&mut self, decisions: &mut Vec<Decision>) {
        while let Some((number, end)) = self.settled.pop_front() {
            let Some(job) = self.jobs.remove(&number) else { continue };
            match job.state {
                State::Blocked(_) => self.blocked -= 1,
                State::Retrying => self.retrying -= 1,
                State::Admitted { slot } => self.pool.release(self.ready.needs(job.shape), slot),
                // A running job is made undecided by its end, and ready ones are settled only after the queue was cleared.
                State::Undecided | State::Past | State::Ready | State::Running { .. } => {}
            }
            self.ready.forget(job.shape);
            if job.state != State::Past {
                self.tally.count(end.outcome);
            }
            let is_success = end.outcome == JobOutcome::Succeeded;
            if let (Some(names), Some(name)) = (&mut self.names, job.name) {
                let holder = if is_success { Holder::Succeeded } else { Holder::Failed };
                names.set(name, holder(number));
            }
            match end.outcome {
                JobOutcome::Succeeded => self.free(&job.waiters),
                // The batch ends early: dependents are not run, too.
                JobOutcome::NotRun => {}
                _ => {
                    let skipped = JobEnd::from(Cause::After(number));
                    self.settled.extend(job.waiters.iter().map(|it| (it, skipped.clone())));
                }
            }
            decisions.push(Decision::Settle { job: number, end });
        }
    }

    fn free(&mut self, waiters: &Waiters) {
        for number in waiters.iter() {
            // A waiter may have been skipped because of another job.
            let Some(job) = self.jobs.get_mut(&number) else { continue };
            let State::Blocked(unmet) = job.state else { continue };
            if unmet > 1 {
                job.state = State::Blocked(unmet - 1);
            } else {
                job.state = State::Ready;
                self.blocked -= 1;
                self.ready.push(number, job.shape);
            }
        }
    }
}
