//! The JSON report of a pipeline, described in `docs/json.md`.

use pipewright::{Error, PipelineOutput, StageEnd};
use serde::Serialize;

use super::parse::Parsed;
use crate::args::PipeOptions;
use crate::run::report::{Ended, Used, lossy, signal_of};

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    /// Words as they were parsed.
    command: Vec<String>,
    /// Result of the deciding stage.
    #[serde(flatten)]
    ended: Ended,
    /// Index of the deciding stage.
    decided_by: Option<usize>,
    attempts: u32,
    stages: Vec<Stage>,
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
        parsed: &Parsed,
        result: &Result<PipelineOutput, Error>,
    ) -> Report {
        let ends = result.as_ref().map(|output| output.stages.as_slice()).unwrap_or_default();
        let stage = |(index, words): (usize, &Vec<_>)| Stage::new(lossy(words), ends.get(index));
        Report {
            schema: "pipewright.pipe/1",
            command: lossy(&options.words),
            ended: Ended::new(result.as_ref().map(|output| &output.whole)),
            decided_by: result.as_ref().ok().map(|output| output.decided_by),
            attempts: 1,
            stages: parsed.stages.iter().enumerate().map(stage).collect(),
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
            signal: status.and_then(signal_of),
            used: Used::of(end.and_then(|end| end.usage)),
        }
    }
}
