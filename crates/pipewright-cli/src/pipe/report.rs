//! The JSON report of a pipeline, described in `docs/json.md`.

use pipewright::{Error, PipelineOutput, StageEnd};
use serde::Serialize;

use super::parse::Parsed;
use crate::args::PipelineOptions;
use crate::run::report::{EndReport, Used, lossy, signal_of};

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct PipeReport {
    schema: &'static str,
    /// Words as they were parsed.
    command: Vec<String>,
    /// Result of the deciding stage.
    #[serde(flatten)]
    ended: EndReport,
    /// Index of the deciding stage.
    decided_by: Option<usize>,
    attempts: u32,
    stages: Vec<StageReport>,
}

#[derive(Debug, Serialize)]
struct StageReport {
    command: Vec<String>,
    pid: Option<u32>,
    exit_code: Option<i32>,
    signal: Option<String>,
    #[serde(flatten)]
    used: Used,
}

impl PipeReport {
    pub(super) fn new(
        options: &PipelineOptions,
        parsed: &Parsed,
        result: &Result<PipelineOutput, Error>,
    ) -> PipeReport {
        let ends = result.as_ref().map(|output| output.stages.as_slice()).unwrap_or_default();
        let stage =
            |(index, words): (usize, &Vec<_>)| StageReport::new(lossy(words), ends.get(index));
        PipeReport {
            schema: "pipewright.pipe/1",
            command: lossy(&options.words),
            ended: EndReport::new(result.as_ref().map(|output| &output.whole)),
            decided_by: result.as_ref().ok().map(|output| output.decided_by),
            attempts: 1,
            stages: parsed.stages.iter().enumerate().map(stage).collect(),
        }
    }
}

impl StageReport {
    fn new(command: Vec<String>, end: Option<&StageEnd>) -> StageReport {
        let status = end.map(|end| end.status);
        StageReport {
            command,
            pid: end.map(|end| end.pid),
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(signal_of),
            used: Used::of(end.and_then(|end| end.usage)),
        }
    }
}
