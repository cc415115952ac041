//! The page about a batch, from its log.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::LogView;
use crate::executor::{AttemptEnd, AttemptKey, AttemptOutcome};
use crate::journal::read::{AttemptFilter, AttemptRow};
use crate::journal::{self, LogError};
use crate::watch::{BatchFacts, JobState, PageModel, Update};

impl LogView {
    /// Returns a page about the batch: HTML with everything in it.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn page(&self) -> Result<String, LogError> {
        let (batch, runs) = (self.log.batch()?, self.log.runs()?);
        let started = runs.first().map_or(batch.created, |run| run.started);
        let facts = BatchFacts {
            command: batch.description,
            slots: runs.iter().map(|run| run.slots).max().unwrap_or(1),
            started: time(started),
            log: Some(self.log.path().display().to_string()),
        };
        let mut page = PageModel::new(facts);
        self.log.for_each_attempt(&AttemptFilter::default(), |attempt| {
            let end = end_of(&attempt);
            let (key, now) = (end.key, end.started.checked_add(end.elapsed).unwrap_or(end.started));
            page.update(&Update::Started { key, slot: attempt.slot.unwrap_or(0), text: "" }, now);
            let last_lines = attempt.stderr_tail.as_deref().unwrap_or_default();
            page.update(&Update::Ended { end: &end, text: &attempt.job.command, last_lines }, now);
            ControlFlow::Continue(())
        })?;
        let end = runs.iter().filter_map(|run| run.ended).fold(started, f64::max);
        self.log.for_each_job(None, |job| {
            if let Some(state) = state_of(job.state) {
                let reason = job.reason.as_deref();
                page.update(&Update::Settled { job: job.number, state, reason }, time(end));
            }
            ControlFlow::Continue(())
        })?;
        Ok(page.html())
    }
}

/// Returns a time of a log, which may come from elsewhere: none is longer than a thousand years, so that sums stay in range.
fn seconds(seconds: f64) -> Duration {
    const MOST: Duration = Duration::from_secs(1000 * 365 * 86_400);
    Duration::try_from_secs_f64(seconds).unwrap_or_default().min(MOST)
}

pub(super) fn time(unix_seconds: f64) -> SystemTime {
    let since = seconds(unix_seconds);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

fn end_of(attempt: &AttemptRow) -> AttemptEnd {
    let text = || attempt.error.clone().unwrap_or_default();
    let outcome = match attempt.outcome.as_str() {
        "exited" => AttemptOutcome::Exited(attempt.code.unwrap_or(0)),
        "signaled" => AttemptOutcome::Signaled(attempt.signal.unwrap_or(0)),
        "timed_out" => AttemptOutcome::TimedOut,
        "idle_timed_out" => AttemptOutcome::IdleTimedOut,
        "limit_exceeded" => AttemptOutcome::LimitExceeded,
        "cancelled" => AttemptOutcome::Cancelled,
        "out_of_memory" => AttemptOutcome::OutOfMemory,
        "not_started" => AttemptOutcome::NotStarted(text()),
        _ => AttemptOutcome::Lost("interrupted".to_owned()),
    };
    let key = AttemptKey { job: attempt.job.number, attempt: attempt.attempt };
    let elapsed = seconds(attempt.elapsed_seconds.unwrap_or(0.0));
    AttemptEnd::new(key, outcome, time(attempt.started), elapsed)
}

fn state_of(state: journal::JobState) -> Option<JobState> {
    Some(match state {
        journal::JobState::Succeeded => JobState::Succeeded,
        journal::JobState::Failed(_) => JobState::Failed,
        journal::JobState::Stopped => JobState::Stopped,
        journal::JobState::Skipped => JobState::Skipped,
        journal::JobState::NotRun => JobState::NotRun,
        journal::JobState::Unknown => JobState::Unknown,
        journal::JobState::Refused => JobState::Refused,
        // It will run again.
        journal::JobState::Waiting
        | journal::JobState::Started
        | journal::JobState::Interrupted => return None,
    })
}
