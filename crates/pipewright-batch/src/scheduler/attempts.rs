//! Ends of attempts: success, retry, another attempt after a stop under pressure, or failure; what they mean for jobs
//! and for those that wait for them; and the early end of a batch.

use std::time::Duration;

use super::Scheduler;
use super::adding::{Attempt, Job, State, StopReason, before_another_attempt};
use super::admission::Needs;
use super::event::{Cause, Decision, JobEnd, JobNumber, Pressure, Requeued};
use super::names::{Holder, Waiters};
use crate::vocabulary::{Failure, Halt, HaltAt, JobOutcome};

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
        may_retry: bool,
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
            // This attempt has not begun, but an earlier one may have: a resumed batch would run the job again if it
            // were stopped.
            (Err(failure), Some(_)) if once && is_retried => Cause::Failure(failure).into(),
            (Err(_), Some(StopReason::Pressure)) if self.halted.is_none() => {
                return self.queue_again(number, Attempt::Shed, Requeued::Pressure, decisions);
            }
            (Err(_), Some(_)) => JobOutcome::Stopped.into(),
            (Err(failure), None) => match self.another(number, failure, may_retry) {
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

    /// Settles a job whose attempt succeeded, and whose output is lost: it is not done, and runs again only in a
    /// resumed batch; a `once` job does not run again.
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

    /// Settles a job whose answer is lost, or tries it again if its retries say so. Nobody knows how far it got, so
    /// nothing else repeats it.
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
    fn another(&self, number: JobNumber, failure: Failure, may_retry: bool) -> Option<Another> {
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
            _ if may_retry && job.retries_left > 0 && retry.on.contains(failure) => {
                Some(Another::Retry)
            }
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

// Retries: which failures are tried again, and after which delay.

/// Rules for another attempt. Each job has its own number of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    pub(crate) on: FailureSet,
    /// The delay before the first retry. It doubles with each further one.
    pub(crate) delay: Duration,
    /// The longest delay, before jitter, which only shortens it. Equal to `delay`: all delays are the same.
    pub(crate) max_delay: Duration,
    /// The share of a delay that is random, so that jobs that failed together are not retried together: up to 100.
    pub(crate) jitter_percent: u8,
}

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureSet(u8);

impl FailureSet {
    pub(crate) fn contains(self, failure: Failure) -> bool {
        self.0 & FailureSet::bit(failure) != 0
    }

    fn bit(failure: Failure) -> u8 {
        1 << failure as u8
    }
}

impl FromIterator<Failure> for FailureSet {
    fn from_iter<I: IntoIterator<Item = Failure>>(failures: I) -> FailureSet {
        FailureSet(failures.into_iter().fold(0, |set, failure| set | FailureSet::bit(failure)))
    }
}

impl RetryPolicy {
    /// Returns the delay before that retry, from 1. It depends only on the arguments, not on what happened before.
    pub(crate) fn delay(&self, seed: u64, job: JobNumber, retry: u32) -> Duration {
        let doublings = retry.saturating_sub(1).min(31);
        let delay = self.delay.saturating_mul(1 << doublings).min(self.max_delay);
        // 584 years are enough.
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let random = mixed(mixed(mixed(seed) ^ job.0) ^ u64::from(retry));
        let part = |of: u64| {
            let below = ((u128::from(of) + 1) * u128::from(random)) >> 64;
            u64::try_from(below).unwrap_or(of)
        };
        let share = u128::from(nanos) * u128::from(self.jitter_percent) / 100;
        let random_nanos = u64::try_from(share).unwrap_or(nanos);
        Duration::from_nanos(nanos - random_nanos + part(random_nanos))
    }
}

/// Mixes the bits of a number (splitmix64).
pub(super) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

// Ends: a job is settled, and its dependents are freed or skipped, without recursion.

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
                // A running job is made undecided by its end, and ready ones are settled only after the queue was
                // cleared.
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

// The number of failures at which a batch ends early.

/// Failures before a percentage of an unknown number of jobs counts. The first job alone is no statistic.
pub(crate) const LEAST_FAILURES: u64 = 3;

/// Counts of this run. Jobs that ended in an earlier run are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// The number of all jobs, if it is known.
    pub(super) total: Option<u64>,
    pub(super) added: u64,
    failures: u64,
    successes: u64,
}

impl Tally {
    pub(super) fn new(total: Option<u64>) -> Tally {
        Tally { total, ..Tally::default() }
    }

    pub(super) fn count(&mut self, outcome: JobOutcome) {
        match outcome {
            JobOutcome::Failed | JobOutcome::Refused | JobOutcome::Unknown => self.failures += 1,
            JobOutcome::Succeeded => self.successes += 1,
            JobOutcome::Stopped | JobOutcome::Skipped | JobOutcome::NotRun => {}
        }
    }

    pub(super) fn reaches(&self, limit: HaltAt) -> bool {
        match limit {
            HaltAt::Successes(count) => self.successes >= count.get(),
            HaltAt::Failures(count) => self.failures >= count.get(),
            HaltAt::FailedPercent(percent) => {
                let least = if self.total.is_some() { 1 } else { LEAST_FAILURES };
                let all = u128::from(self.total.unwrap_or(self.added));
                self.failures >= least
                    && u128::from(self.failures) * 100 >= all * u128::from(percent.min(100))
            }
        }
    }
}

// The early end of a batch: drain, stop, too many failures.

impl Scheduler {
    /// Ends the batch. A drained one can still be stopped.
    pub(super) fn halt(&mut self, cause: Halt, decisions: &mut Vec<Decision>) {
        if self.halted.is_none() {
            self.halted = Some(cause);
            self.settle_unstarted(decisions);
            self.names = None;
        }
        let stops = match cause {
            Halt::Failures | Halt::Successes => self.config.halt.is_some_and(|it| it.stops_running),
            other => other == Halt::Stop,
        };
        if stops && !self.stopping {
            self.stopping = true;
            self.stop_running(decisions);
        }
    }

    fn settle_unstarted(&mut self, decisions: &mut Vec<Decision>) {
        let is_running = |state| matches!(state, State::Running { .. });
        let jobs = self.jobs.iter().filter(|(_, job)| !is_running(job.state));
        let mut unstarted: Vec<(JobNumber, JobEnd)> =
            jobs.map(|(number, job)| (*number, job.end_without_another_attempt())).collect();
        unstarted.sort_unstable_by_key(|(number, _)| *number);
        self.ready.clear();
        // A job that failed and gets no retry now is the cause for its dependents, whose numbers may be lower.
        let is_unrun = |(_, end): &(_, JobEnd)| end.outcome == JobOutcome::NotRun;
        let (not_run, ended) = unstarted.into_iter().partition(is_unrun);
        self.settled.extend::<Vec<_>>(ended);
        self.settle_all(decisions);
        self.settled.extend::<Vec<_>>(not_run);
        self.settle_all(decisions);
    }

    /// Marks an attempt that is stopped before it has a place.
    pub(super) fn withdraw(&mut self, number: JobNumber) {
        let Some(job) = self.jobs.get_mut(&number).filter(|_| self.halted.is_some()) else {
            return;
        };
        if let State::Running { stop, .. } = &mut job.state {
            stop.get_or_insert(StopReason::End);
        }
    }

    fn stop_running(&mut self, decisions: &mut Vec<Decision>) {
        let mut stopped = Vec::new();
        for (number, job) in &mut self.jobs {
            if let State::Running { stop, .. } = &mut job.state {
                // A job that is stopped under pressure is reported only once.
                if stop.is_none() {
                    *stop = Some(StopReason::End);
                    stopped.push(*number);
                }
            }
        }
        stopped.sort_unstable();
        decisions.extend(stopped.into_iter().map(|job| Decision::Stop { job }));
    }
}
