//! Ends of attempts: success, retry, another attempt after a stop under pressure, or failure.

use super::Scheduler;
use super::event::{Cause, Decision, JobEnd, JobNumber, Pressure, Requeued};
use super::job::{Attempt, Job, State, StopReason, before_another_attempt};
use super::limits::Needs;
use crate::vocabulary::{Failure, JobOutcome};

/// An attempt that follows another one.
#[derive(Clone, Copy, Debug)]
enum Another {
    Retry,
    /// It counts as no retry.
    Queued(Requeued),
}

impl Scheduler {
    pub(super) fn ended(
        &mut self,
        number: JobNumber,
        attempt: u32,
        result: Result<(), Failure>,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(stop) = self.take_ended(number, attempt) else { return };
        let once = self.jobs.get(&number).is_some_and(|job| job.once);
        let is_retried = self.jobs.get(&number).is_some_and(|job| job.retries > 0);
        let end: JobEnd = match (result, stop) {
            (Ok(()), _) => JobOutcome::Succeeded.into(),
            // It may have run to its end, so another attempt may be its second run.
            (Err(Failure::Lost), _) if once => JobOutcome::Unknown.into(),
            // Nobody knows how far it got. One that could not be started has not begun.
            (Err(failure), Some(_)) if once && failure != Failure::StartFailed => {
                JobOutcome::Unknown.into()
            }
            (Err(failure), Some(_)) if once && is_retried => Cause::Failure(failure).into(),
            (Err(_), Some(StopReason::Pressure)) if self.halted.is_none() => {
                return self.queue_again(number, Attempt::Shed, Requeued::Pressure, decisions);
            }
            (Err(_), Some(_)) => JobOutcome::Stopped.into(),
            (Err(failure), None) => match self.another(number, failure) {
                None => Cause::Failure(failure).into(),
                Some(_) if self.halted.is_some() => {
                    before_another_attempt(failure, once, is_retried)
                }
                Some(Another::Retry) => return self.retry(number, failure, decisions),
                Some(Another::Queued(cause)) => {
                    return self.queue_again(number, Attempt::Failed(failure), cause, decisions);
                }
            },
        };
        self.settle(number, end, decisions);
    }

    /// Settles a job whose attempt succeeded, and whose output is lost: it is not done, and runs again only in a resumed batch;
    /// a `once` job does not run again.
    pub(super) fn unstored(
        &mut self,
        number: JobNumber,
        attempt: u32,
        decisions: &mut Vec<Decision>,
    ) {
        let once = self.jobs.get(&number).is_some_and(|job| job.once);
        if self.take_ended(number, attempt).is_some() {
            let end = if once { JobOutcome::Unknown.into() } else { JobEnd::from(Cause::Unstored) };
            self.settle(number, end, decisions);
        }
    }

    /// Settles a job whose answer is lost, or tries it again if its retries say so. Nobody knows how far it got, so nothing else
    /// repeats it.
    pub(super) fn unanswered(
        &mut self,
        number: JobNumber,
        attempt: u32,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(stop) = self.take_ended(number, attempt) else { return };
        let may_go_on = stop.is_none() && self.halted.is_none();
        let is_retried = |job: &Job| !job.once && job.retries_left > 0;
        match self.jobs.get(&number) {
            Some(job)
                if may_go_on && is_retried(job) && self.config.retry.on.contains(Failure::Lost) =>
            {
                self.retry(number, Failure::Lost, decisions);
            }
            _ => self.settle(number, JobOutcome::Unknown.into(), decisions),
        }
    }

    /// Frees what a running attempt holds. Returns why it was stopped, if it was. `None`: it does not run.
    fn take_ended(&mut self, number: JobNumber, attempt: u32) -> Option<Option<StopReason>> {
        let job = self.jobs.get_mut(&number)?;
        let State::Running { slot, since, stop } = job.state else { return None };
        if job.attempts != attempt {
            return None;
        }
        job.state = State::Undecided;
        self.running -= 1;
        self.shedding -= usize::from(stop == Some(StopReason::Pressure));
        self.sheddable.remove(&(since, number));
        self.pool.release(self.ready.needs(job.shape), slot);
        Some(stop)
    }

    /// Returns the attempt that follows a failure. `None`: there is none.
    fn another(&self, number: JobNumber, failure: Failure) -> Option<Another> {
        let job = self.jobs.get(&number)?;
        let retry = &self.config.retry;
        match failure {
            // Not the job's fault, unless it takes one executor after the other with it.
            Failure::Lost if job.lost + 1 < self.config.max_lost => {
                Some(Another::Queued(Requeued::Lost))
            }
            Failure::OutOfMemory if self.more_memory(number).is_some() => {
                Some(Another::Queued(Requeued::MoreMemory))
            }
            _ if job.retries_left > 0 && retry.on.contains(failure) => Some(Another::Retry),
            _ => None,
        }
    }

    fn queue_again(
        &mut self,
        number: JobNumber,
        last: Attempt,
        cause: Requeued,
        decisions: &mut Vec<Decision>,
    ) {
        let more = self.more_memory(number).filter(|_| cause == Requeued::MoreMemory);
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if let Some(more) = more {
            self.ready.forget(job.shape);
            job.shape = self.ready.shape(more);
        }
        job.lost += u32::from(cause == Requeued::Lost);
        job.last = Some(last);
        job.state = State::Ready;
        self.ready.push(number, job.shape);
        decisions.push(Decision::Requeue { job: number, cause });
    }

    fn retry(&mut self, number: JobNumber, failure: Failure, decisions: &mut Vec<Decision>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.retries_left -= 1;
        job.retries = job.retries.saturating_add(1);
        let delay = self.config.retry.delay(self.config.seed, number, job.retries);
        job.last = Some(Attempt::Failed(failure));
        job.state = State::Retrying;
        self.retrying += 1;
        decisions.push(Decision::Retry { job: number, delay });
    }

    /// Returns the needs of a job that ran out of memory, with twice as much. `None`: it has all that it may have.
    fn more_memory(&self, number: JobNumber) -> Option<Needs> {
        let job = self.jobs.get(&number).filter(|job| !job.once)?;
        let needs = self.ready.needs(job.shape);
        let (now, most) = needs.memory_bytes.zip(job.most_memory_bytes)?;
        let most = self.config.limits.memory_bytes.map_or(most, |limit| limit.min(most));
        let more = Needs { memory_bytes: Some(now.saturating_mul(2).min(most)), ..needs.clone() };
        (now < most).then_some(more)
    }

    pub(super) fn retry_due(&mut self, number: JobNumber) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if job.state == State::Retrying {
            job.state = State::Ready;
            self.retrying -= 1;
            self.ready.push(number, job.shape);
        }
    }

    pub(super) fn press(&mut self, pressure: Pressure, decisions: &mut Vec<Decision>) {
        self.pressure = pressure != Pressure::None;
        // Jobs of a batch that ends are not started again, so they are let run.
        if pressure == Pressure::Shed && self.halted.is_none() {
            self.shed(decisions);
        }
    }

    /// Stops the running job that has lost least by it. The last running one goes on.
    fn shed(&mut self, decisions: &mut Vec<Decision>) {
        if self.running - self.shedding <= 1 {
            return;
        }
        let Some((_, number)) = self.sheddable.pop_last() else { return };
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if let State::Running { stop, .. } = &mut job.state {
            *stop = Some(StopReason::Pressure);
            self.shedding += 1;
            decisions.push(Decision::Stop { job: number });
        }
    }
}
