//! The end of a command as the end of an attempt.

use std::error::Error as _;
use std::io;
use std::time::{Duration, SystemTime};

use pipewright::{Capture, Error, ErrorKind, Outcome};

use crate::executor::{AttemptEnd, AttemptKey, AttemptOutcome};

/// Returns the end of an attempt.
pub(super) fn end(
    key: AttemptKey,
    started: SystemTime,
    result: Result<Capture, Error>,
) -> AttemptEnd {
    match result {
        Ok(capture) => {
            let outcome = outcome(&capture);
            let mut end = AttemptEnd::new(key, outcome, started, capture.elapsed);
            end.user = capture.usage.map(|usage| usage.user);
            end.system = capture.usage.map(|usage| usage.system);
            let peak_of_tree =
                capture.tree_usage.as_ref().and_then(|usage| usage.peak_memory_bytes);
            end.peak_rss_bytes =
                capture.usage.and_then(|usage| usage.peak_rss_bytes).max(peak_of_tree);
            end.stdout_bytes = capture.stdout_bytes.unwrap_or(0);
            end.stderr_bytes = capture.stderr_bytes.unwrap_or(0);
            end.leftovers_killed = capture.leftovers_killed;
            end
        }
        Err(error) => {
            let elapsed = started.elapsed().unwrap_or(Duration::ZERO);
            AttemptEnd::new(key, without_status(&error), started, elapsed)
        }
    }
}

fn outcome(capture: &Capture) -> AttemptOutcome {
    match capture.outcome {
        Outcome::TimedOut => AttemptOutcome::TimedOut,
        Outcome::IdleTimedOut => AttemptOutcome::IdleTimedOut,
        Outcome::LimitExceeded => AttemptOutcome::LimitExceeded,
        Outcome::Cancelled => AttemptOutcome::Cancelled,
        Outcome::OutOfMemory(_) => AttemptOutcome::OutOfMemory,
        _ => match (capture.status.code(), capture.status.signal()) {
            (Some(code), _) => AttemptOutcome::Exited(code),
            (None, Some(signal)) => AttemptOutcome::Signaled(signal),
            (None, None) => AttemptOutcome::Lost("its exit status is unknown".to_owned()),
        },
    }
}

/// Returns the outcome of a start that was ended because the file of the program, or the directory, never answered.
pub(super) fn unanswered(error: &Error) -> Option<AttemptOutcome> {
    let cause = error.source()?.downcast_ref::<io::Error>();
    // An error of the system is the answer.
    let cause = cause.filter(|cause| error.is_start() && cause.raw_os_error().is_none());
    match cause?.kind() {
        io::ErrorKind::TimedOut => Some(AttemptOutcome::TimedOut),
        io::ErrorKind::Interrupted => Some(AttemptOutcome::Cancelled),
        _ => None,
    }
}

/// Returns the outcome of a command that has no status.
fn without_status(error: &Error) -> AttemptOutcome {
    let message = error.to_string();
    match error.kind() {
        // With a status it would be the outcome of a capture: nothing of it ran.
        ErrorKind::Cancelled => AttemptOutcome::NotStarted(message),
        ErrorKind::StatusLost => AttemptOutcome::Lost(message),
        _ if error.is_start() => unanswered(error).unwrap_or(AttemptOutcome::NotStarted(message)),
        _ => AttemptOutcome::Lost(message),
    }
}
