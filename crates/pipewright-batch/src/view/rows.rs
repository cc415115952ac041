//! Attempts and jobs of the log as rows of a table.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::journal::read::{self, AttemptFilter, AttemptRow, Log};
use crate::journal::{JobState, LogError};
use crate::watch::{JobRow, signal_name};

/// Returns the row of an attempt.
pub(super) fn of_attempt(attempt: &AttemptRow) -> JobRow {
    let mut row = of_job(&attempt.job);
    row.attempts = attempt.attempt;
    row.elapsed =
        attempt.elapsed_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    row.exit = Some(exit_words(attempt));
    row
}

fn of_job(job: &read::JobRow) -> JobRow {
    JobRow {
        job: job.number,
        name: job.name.clone(),
        state: job.state.name().to_owned(),
        attempts: 0,
        elapsed: None,
        exit: None,
        reason: job.reason.clone().filter(|_| !matches!(job.state, JobState::Failed(_))),
        command: job.command.clone(),
    }
}

fn exit_words(attempt: &AttemptRow) -> String {
    match (attempt.code, attempt.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => signal_name(signal),
        (None, None) => attempt.outcome.replace('_', " "),
    }
}

/// Calls the function for the row of each job: with its last attempt, in the order of the log, then those that have none.
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
    let filter = AttemptFilter::default();
    log.for_each_attempt(&filter, |attempt| {
        let is_last = attempt.job.last_attempt == Some(attempt.row);
        if is_last && has_state(&attempt.job, state) {
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
        None => each(of_job(&job)),
    })
}

/// Compares without the class of a failure.
fn has_state(job: &read::JobRow, state: Option<JobState>) -> bool {
    state.is_none_or(|state| state.name() == job.state.name())
}
