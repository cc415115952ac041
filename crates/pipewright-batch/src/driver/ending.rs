//! Ends of attempts, and of jobs.

use super::live::LiveJob;
use super::{Driver, Event, Executor};
use crate::executor::AttemptEnd;
use crate::scheduler::{self, Cause, Decision, JobEnd, JobNumber};
use crate::vocabulary::{Failure, JobOutcome};

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
        let is_unanswered = result == Err(Failure::Lost) && !end.is_lost_with_node;
        self.report(match lost {
            Some(_) => scheduler::Event::Unstored { job, attempt },
            None if is_unanswered => scheduler::Event::Unanswered { job, attempt },
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

    /// Records the end of a job.
    pub(super) fn settle(&mut self, number: JobNumber, end: &JobEnd) {
        let Some(live) = self.live.remove(number) else { return };
        let reason = match &end.cause {
            // The log has the reason.
            _ if live.is_past => None,
            None => None,
            Some(Cause::Failure(_) | Cause::Unstored) => {
                Some(live.failure.clone().unwrap_or_default())
            }
            Some(Cause::After(job)) => Some(format!("job {} did not succeed", job.0)),
            Some(Cause::Refusal(refusal)) => Some(refusal.to_string()),
        };
        self.conclude(number, &live, end, reason);
    }

    /// Notes the end of a job everywhere.
    pub(super) fn conclude(
        &mut self,
        number: JobNumber,
        live: &LiveJob,
        end: &JobEnd,
        reason: Option<String>,
    ) {
        // What ended in an earlier run stays as it is, also if the input has no place for it.
        let stands = match live.is_past {
            true => None,
            false => self.log.settled(number, live, end, reason.as_deref()),
        };
        let is_old = live.is_past || stands.is_some();
        let (outcome, reason) = stands.map_or((end.outcome, reason), |earlier| (earlier, None));
        // Somebody has to look at an unknown one in each run, and at one that the input has twice.
        let before = is_old && matches!(outcome, JobOutcome::Succeeded | JobOutcome::Failed);
        if let Some(output) = &mut self.output {
            output.settle(number.0);
        }
        let (job, id) = (number.0, live.id);
        self.events.push_back(Event::Settled { job, id, outcome, reason, before });
    }
}
