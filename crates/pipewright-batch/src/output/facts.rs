//! The facts about an attempt, in `job.json`.

use std::time::{Duration, SystemTime};

use pipewright::Signal;
use serde::Serialize;

use super::JobInfo;
use super::attempt::Finished;
use crate::executor::{AttemptEnd, AttemptOutcome};

/// The facts about the last attempt of a job. Later versions only add fields, as those of all reports do.
#[derive(Debug, Serialize)]
pub(super) struct Facts<'a> {
    schema: &'static str,
    number: u64,
    id: String,
    name: Option<&'a str>,
    command: &'a str,
    attempt: u32,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    /// The reason why it could not be started, or was lost.
    error: Option<&'a str>,
    started_unix_seconds: f64,
    elapsed_seconds: f64,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// True if the files have less than the attempt wrote.
    truncated: bool,
    leftovers_killed: u32,
}

impl<'a> Facts<'a> {
    pub(super) fn new(job: &'a JobInfo, end: &'a AttemptEnd, output: &Finished) -> Facts<'a> {
        let (exit_code, signal, error) = match &end.outcome {
            AttemptOutcome::Exited(code) => (Some(*code), None, None),
            AttemptOutcome::Signaled(number) => (None, Some(signal_name(*number)), None),
            AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) => {
                (None, None, Some(&**reason))
            }
            _ => (None, None, None),
        };
        let started = end.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Facts {
            schema: "pipewright.job/1",
            number: end.key.job,
            id: job.id.to_string(),
            name: job.name.as_deref(),
            command: &job.command,
            attempt: end.key.attempt,
            outcome: end.outcome.name(),
            exit_code,
            signal,
            error,
            started_unix_seconds: started.as_secs_f64(),
            elapsed_seconds: end.elapsed.as_secs_f64(),
            user_seconds: seconds(end.user),
            system_seconds: seconds(end.system),
            peak_rss_bytes: end.peak_rss_bytes,
            stdout_bytes: output.stdout_bytes,
            stderr_bytes: output.stderr_bytes,
            truncated: output.is_truncated,
            leftovers_killed: end.leftovers_killed,
        }
    }
}

fn signal_name(number: i32) -> String {
    Signal::from_number(number).map_or_else(|| number.to_string(), |signal| signal.to_string())
}
