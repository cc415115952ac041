//! Ends of attempts: success, retry, another attempt after a stop under pressure, or failure.

use super::Scheduler;
use super::event::{Decision, Failure, JobNumber, Outcome, Pressure};
use super::job::{Attempt, State, StopReason};
use super::limits::Needs;

impl Scheduler {
    pub(super) fn ended(
        &mut self,
        number: JobNumber,
        attempt: u32,
        result: Result<(), Failure>,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let State::Running { slot, since, stop } = job.state else { return };
        if job.attempts != attempt {
            return;
        }
        job.state = State::Undecided;
        self.running -= 1;
        self.shedding -= usize::from(stop == Some(StopReason::Pressure));
        self.sheddable.remove(&(since, number));
        self.pool.release(self.ready.needs(job.shape), slot);

        let is_over = self.halted.is_some();
        let outcome = match (result, stop) {
            (Ok(()), _) => Outcome::Succeeded,
            // It may have run to its end, so another attempt may be its second run.
            (Err(Failure::Lost), _) if job.once => Outcome::Unknown,
            (Err(_), Some(StopReason::Pressure)) if !is_over => {
                job.last = Some(Attempt::Shed);
                job.state = State::Ready;
                self.ready.push(number, job.shape);
                decisions.push(Decision::Requeue { job: number });
                return;
            }
            (Err(_), Some(_)) => Outcome::Stopped,
            // Not the job's fault, unless it takes one executor after the other with it.
            (Err(Failure::Lost), None) if !is_over && job.lost + 1 < self.config.max_lost => {
                job.lost += 1;
                job.last = Some(Attempt::Failed(Failure::Lost));
                job.state = State::Ready;
                self.ready.push(number, job.shape);
                decisions.push(Decision::Requeue { job: number });
                return;
            }
            (Err(failure @ Failure::OutOfMemory), None)
                if !is_over && self.give_more_memory(number) =>
            {
                let Some(job) = self.jobs.get_mut(&number) else { return };
                job.last = Some(Attempt::Failed(failure));
                job.state = State::Ready;
                self.ready.push(number, job.shape);
                decisions.push(Decision::Requeue { job: number });
                return;
            }
            (Err(failure), None) => {
                let Some(job) = self.jobs.get_mut(&number) else { return };
                let retry = &self.config.retry;
                if !is_over && job.retries_left > 0 && retry.on.contains(failure) {
                    job.retries_left -= 1;
                    job.retries = job.retries.saturating_add(1);
                    let delay = retry.delay(self.config.seed, number, job.retries);
                    job.last = Some(Attempt::Failed(failure));
                    job.state = State::Retrying;
                    self.retrying += 1;
                    decisions.push(Decision::Retry { job: number, delay });
                    return;
                }
                Outcome::Failed(failure)
            }
        };
        self.settle(number, outcome, decisions);
    }

    /// Doubles the memory of a job that ran out of it. Returns false if it has all that it may have.
    fn give_more_memory(&mut self, number: JobNumber) -> bool {
        let Some(job) = self.jobs.get_mut(&number).filter(|job| !job.once) else { return false };
        let needs = self.ready.needs(job.shape);
        let Some((now, most)) = needs.memory_bytes.zip(job.most_memory_bytes) else { return false };
        let most = self.config.limits.memory_bytes.map_or(most, |limit| limit.min(most));
        if now >= most {
            return false;
        }
        let more = Needs { memory_bytes: Some(now.saturating_mul(2).min(most)), ..needs.clone() };
        self.ready.forget(job.shape);
        job.shape = self.ready.shape(more);
        true
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
