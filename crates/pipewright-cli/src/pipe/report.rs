//! The report of a pipeline: one JSON object, described in `docs/json.md`.

use std::ffi::OsString;

use pipewright::{Containment, Error, Outcome, PipelineOutput, StageEnd};
use serde::Serialize;

use super::words::Typed;
use crate::args::PipeOptions;
use crate::run::report::{Problem, Used, outcome_word};

/// The object. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    /// As it was typed.
    command: Vec<String>,
    /// Of the stage that decided.
    pid: Option<u32>,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    /// Which stage that is.
    decided_by: Option<usize>,
    elapsed_seconds: f64,
    #[serde(flatten)]
    used: Used,
    stdout_bytes: Option<u64>,
    stderr_bytes: Option<u64>,
    held_open: bool,
    truncated: bool,
    containment: String,
    leftovers_killed: u32,
    attempts: u32,
    stages: Vec<Stage>,
    error: Option<Problem>,
}

#[derive(Debug, Serialize)]
struct Stage {
    command: Vec<String>,
    pid: Option<u32>,
    exit_code: Option<i32>,
    signal: Option<String>,
    #[serde(flatten)]
    used: Used,
}

impl Report {
    pub(super) fn new(
        options: &PipeOptions,
        typed: &Typed,
        result: &Result<PipelineOutput, Error>,
    ) -> Report {
        let ends = result.as_ref().map(|output| output.stages.as_slice()).unwrap_or_default();
        let stage = |(index, words): (usize, &Vec<_>)| Stage::new(lossy(words), ends.get(index));
        let empty = Report {
            schema: "pipewright.pipe/1",
            command: lossy(&options.words),
            pid: None,
            outcome: "not_started",
            exit_code: None,
            signal: None,
            decided_by: None,
            elapsed_seconds: 0.0,
            used: Used::default(),
            stdout_bytes: None,
            stderr_bytes: None,
            held_open: false,
            truncated: false,
            containment: Containment::None.to_string(),
            leftovers_killed: 0,
            attempts: 1,
            stages: typed.stages.iter().enumerate().map(stage).collect(),
            error: None,
        };
        match result {
            Err(error) => Report { error: Some(Problem::new(error)), ..empty },
            Ok(output) => empty.of(output),
        }
    }

    fn of(self, output: &PipelineOutput) -> Report {
        Report {
            pid: Some(output.pid),
            outcome: outcome_word(output.outcome),
            exit_code: output.status.code(),
            signal: output.status.terminating_signal().map(|signal| signal.to_string()),
            decided_by: Some(output.decided_by),
            elapsed_seconds: output.elapsed.as_secs_f64(),
            used: Used::of(output.usage),
            stdout_bytes: output.stdout_bytes,
            stderr_bytes: output.stderr_bytes,
            held_open: output.held_open,
            containment: output.containment.to_string(),
            leftovers_killed: output.leftovers_killed,
            // What merely passes through is meant not to be kept.
            truncated: output.outcome == Outcome::LimitExceeded,
            ..self
        }
    }
}

impl Stage {
    fn new(command: Vec<String>, end: Option<&StageEnd>) -> Stage {
        let status = end.map(|end| end.status);
        Stage {
            command,
            pid: end.map(|end| end.pid),
            exit_code: status.and_then(|status| status.code()),
            signal: status
                .and_then(|status| status.terminating_signal())
                .map(|signal| signal.to_string()),
            used: Used::of(end.and_then(|end| end.usage)),
        }
    }
}

fn lossy(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
