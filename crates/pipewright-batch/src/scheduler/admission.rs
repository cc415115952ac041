//! Admission: which jobs are intended and started.

use super::Scheduler;
use super::event::{Decision, JobNumber};
use super::job::State;

impl Scheduler {
    /// Starts all jobs that can start now.
    pub(super) fn admit(&mut self, decisions: &mut Vec<Decision>) {
        self.wanted_permits = None;
        if self.halted.is_some() || !self.log_works {
            return;
        }
        while !self.pressure || self.pool.jobs() == 0 {
            let Some((number, slot)) = self.ready.next(&mut self.pool) else { break };
            let Some(job) = self.jobs.get_mut(&number) else { continue };
            job.attempts = job.attempts.saturating_add(1);
            job.state = State::Admitted { slot };
            let (attempt, durable) = (job.attempts, job.once);
            decisions.push(Decision::Intend { job: number, attempt, durable });
            if !durable {
                self.start(number, decisions);
            }
        }
        self.wanted_permits = self.ready.end_search(&mut self.pool);
    }

    pub(super) fn intended(
        &mut self,
        number: JobNumber,
        attempt: u32,
        decisions: &mut Vec<Decision>,
    ) {
        if self.jobs.get(&number).is_some_and(|job| job.attempts == attempt) {
            if self.log_works {
                // Not held back under pressure: it has its resources, and intents take only milliseconds.
                self.start(number, decisions);
            } else {
                self.held.push(number);
            }
        }
    }

    pub(super) fn log_works(&mut self, decisions: &mut Vec<Decision>) {
        self.log_works = true;
        for number in std::mem::take(&mut self.held) {
            self.start(number, decisions);
        }
    }

    /// Starts an admitted job. In any other state it has been started or settled before.
    fn start(&mut self, number: JobNumber, decisions: &mut Vec<Decision>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let State::Admitted { slot } = job.state else { return };
        self.starts += 1;
        self.running += 1;
        job.state = State::Running { slot, since: self.starts, stop: None };
        if !job.once {
            self.sheddable.insert((self.starts, number));
        }
        decisions.push(Decision::Start { job: number, slot, attempt: job.attempts });
    }
}
