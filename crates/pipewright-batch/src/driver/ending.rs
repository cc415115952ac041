//! Ends of attempts, and of jobs.

use super::live::LiveJob;
use super::{Driver, Event, Executor};
use crate::executor::AttemptEnd;
use crate::scheduler::{self, Decision, JobNumber, Outcome};
use crate::vocabulary::Failure;
use crate::vocabulary::JobState;

impl<E: Executor> Driver<E> {
    /// Records the end of an attempt, and reports it to the scheduler.
    pub(super) fn attempt_ended(&mut self, mut end: AttemptEnd) {
        let (job, attempt) = (JobNumber(end.key.job), end.key.attempt);
        let failure = (!end.outcome.is_success()).then(|| end.outcome.to_string());
        // A late end, of an attempt that was given up, counts for nothing.
        if !self.live.ended(job, attempt, failure) {
            return;
        }
        let result = end.outcome.failure().map_or(Ok(()), Err);
        let command = self.live.get(job).map(|live| live.command.clone()).unwrap_or_default();
        self.pause_after_last_job();
        let before = self.decisions.len();
        // A success is never tried again, and it is none without its output.
        let stored =
            self.output.as_mut().filter(|_| result.is_ok()).map(|it| it.finish(&end, true));
        let lost = stored.as_ref().and_then(|summary| summary.error.as_ref());
        let is_lost = lost.is_some();
        self.report(match lost {
            Some(_) => scheduler::Event::Unstored { job, attempt },
            None => scheduler::Event::Ended { job, attempt, result },
        });
        if let Some((error, live)) = lost.zip(self.live.get_mut(job)) {
            live.failure = Some(format!("its output was not stored: {error}"));
        }
        let is_retried = |decision: &Decision| match decision {
            Decision::Retry { job: retried, .. } | Decision::Requeue { job: retried, .. } => {
                *retried == job
            }
            _ => false,
        };
        let keep = !self.decisions.iter().skip(before).any(is_retried);
        let mut last_lines = String::new();
        let finished = || self.output.as_mut().map(|output| output.finish(&end, keep));
        if let Some(summary) = stored.or_else(finished) {
            let lost = summary.error.as_ref().map(|error| format!("job {}: {error}", job.0));
            self.events.extend(lost.map(Event::Note));
            if let Some(error) = summary.error.clone().filter(|_| keep) {
                self.lost_output.0 += 1;
                self.lost_output.1.get_or_insert(error);
            }
            (end.stdout_bytes, end.stderr_bytes) = (summary.stdout_bytes, summary.stderr_bytes);
            end.output_truncated = summary.truncated;
            self.log.ended(&end, &summary, is_lost);
            last_lines = summary.tail;
        }
        self.events.push_back(Event::Ended { end: Box::new(end), command, last_lines });
    }

    /// Records the outcome of a job.
    pub(super) fn settle(&mut self, number: JobNumber, outcome: Outcome) {
        let Some(live) = self.live.remove(number) else { return };
        let failure = match &outcome {
            Outcome::Failed(failure) => Some(*failure),
            _ => None,
        };
        let state = match outcome {
            Outcome::Succeeded if live.is_past => JobState::SucceededBefore,
            Outcome::Succeeded => JobState::Succeeded,
            Outcome::Failed(_) if live.is_past => JobState::FailedBefore,
            Outcome::Failed(_) => JobState::Failed(live.failure.clone().unwrap_or_default()),
            Outcome::Unstored if live.once => JobState::Unknown,
            Outcome::Unstored => JobState::Failed(live.failure.clone().unwrap_or_default()),
            Outcome::Stopped => JobState::Stopped,
            Outcome::Skipped { cause } => {
                JobState::Skipped(format!("job {} did not succeed", cause.0))
            }
            Outcome::NotRun => JobState::NotRun,
            Outcome::Unknown => JobState::Unknown,
            Outcome::Refused(refusal) => JobState::Refused(refusal.to_string()),
        };
        self.conclude(number, &live, state, failure);
    }

    /// Notes the final state of a job everywhere. A failure without a class is that of its output.
    pub(super) fn conclude(
        &mut self,
        number: JobNumber,
        live: &LiveJob,
        mut state: JobState,
        failure: Option<Failure>,
    ) {
        // What ended in an earlier run stays as it is, also if the input has no place for it.
        if !live.is_past {
            state = self.log.settled(number, live, &state, failure).unwrap_or(state);
        }
        if let Some(output) = &mut self.output {
            output.settle(number.0);
        }
        self.events.push_back(Event::Settled { job: number.0, id: live.id, state });
    }
}
