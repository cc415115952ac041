//! Attempts and jobs of the log as rows of a table.

use std::ops::ControlFlow;
use std::time::SystemTime;

use crate::journal::read::{AttemptFilter, Log};
use crate::journal::rows::{self, AttemptRow, RunningRow};
use crate::journal::{JobState, LogError, system_time};
use crate::vocabulary::{AttemptOutcome, Failure};
use crate::watch::{JobRow, signal_name};

pub(super) fn of_attempt(attempt: &AttemptRow) -> JobRow {
    let mut row = of_job(&attempt.job);
    row.attempts = attempt.end.key.attempt;
    row.elapsed =
        (attempt.end.outcome != AttemptOutcome::Interrupted).then_some(attempt.end.elapsed);
    row.exit = Some(exit_words(&attempt.end.outcome));
    row
}

fn of_job(job: &rows::JobRow) -> JobRow {
    JobRow {
        job: job.number,
        name: job.name.clone(),
        state: job.state.name().to_owned(),
        attempts: 0,
        elapsed: None,
        exit: None,
        // The end of the attempt says the same about other failures.
        reason: job.reason.clone().filter(|_| match job.state.failure() {
            Some(failure) => matches!(failure, Failure::StartFailed | Failure::Lost),
            None => true,
        }),
        command: job.command.clone(),
    }
}

fn of_running(running: &RunningRow) -> JobRow {
    let mut row = of_job(&running.job);
    row.state = "running".to_owned();
    row.attempts = running.attempt;
    row.elapsed = SystemTime::now().duration_since(system_time(running.since)).ok();
    row
}

fn exit_words(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Exited(code) => format!("exit {code}"),
        AttemptOutcome::Signaled(signal) => signal_name(*signal),
        other => other.name().replace('_', " "),
    }
}

/// Calls the function for the row of each job: those that run, those that have ended in the order of their ends, and
/// the others.
pub(super) fn for_each_job(
    log: &Log,
    state: Option<JobState>,
    mut each: impl FnMut(JobRow) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let mut is_over = false;
    let mut call = |row| {
        let flow = each(row);
        is_over |= flow.is_break();
        flow
    };
    if state.is_none_or(|state| state == JobState::Started) {
        for running in log.running()? {
            if call(of_running(&running)).is_break() {
                return Ok(());
            }
        }
    }
    let filter = AttemptFilter::default();
    log.for_each_attempt(&filter, |attempt| {
        let is_last = attempt.job.last_attempt == Some(attempt.row);
        let is_over = attempt.job.state != JobState::Started;
        if is_last && is_over && has_state(&attempt.job, state) {
            call(of_attempt(&attempt))
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if is_over {
        return Ok(());
    }
    log.for_each_job(state, |job| match job.last_attempt {
        Some(_) => ControlFlow::Continue(()),
        None if job.state == JobState::Started => ControlFlow::Continue(()),
        None => each(of_job(&job)),
    })
}

/// Compares without the class of a failure.
fn has_state(job: &rows::JobRow, state: Option<JobState>) -> bool {
    state.is_none_or(|state| state.name() == job.state.name())
}
