//! The early end of a batch: drain, stop, too many failures.

use super::Scheduler;
use super::event::{Decision, JobEnd, JobNumber};
use super::failures::OnLimit;
use super::job::{State, StopReason};
use crate::vocabulary::JobOutcome;

/// The reason why a batch ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltCause {
    Drain,
    Stop,
    /// The limit of failures was reached.
    Failures,
}

impl Scheduler {
    /// Ends the batch. A drained one can still be stopped.
    pub(super) fn halt(&mut self, cause: HaltCause, decisions: &mut Vec<Decision>) {
        if self.halted.is_none() {
            self.halted = Some(cause);
            self.settle_unstarted(decisions);
            self.names = None;
        }
        let stops = match cause {
            HaltCause::Drain => false,
            HaltCause::Stop => true,
            HaltCause::Failures => self.config.failures.then == OnLimit::Stop,
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
                // A job that is stopped under pressure is told only once.
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
