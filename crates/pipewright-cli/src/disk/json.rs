//! A diagnosis as one JSON object, described in `docs/json.md`.

use std::collections::BTreeMap;

use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Measured, Report as Diagnosis, TestOutcome, TestReport};
use serde::Serialize;

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
struct DiskReport<'a> {
    schema: &'static str,
    path: String,
    filesystem: Option<&'a str>,
    backend: Option<&'static str>,
    refused: Vec<RefusedReport>,
    unjudged: Option<UnjudgedReport>,
    requests: usize,
    block_bytes: usize,
    sentence: String,
    tests: Vec<TestSummary>,
}

#[derive(Debug, Serialize)]
struct RefusedReport {
    backend: &'static str,
    reason: &'static str,
    message: String,
}

/// The reason for tests without a verdict.
#[derive(Debug, Serialize)]
struct UnjudgedReport {
    reason: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
struct TestSummary {
    test: String,
    asynchronous: bool,
    direct: bool,
    work: &'static str,
    /// `measured`, `not_possible` or `failed`.
    outcome: &'static str,
    message: Option<String>,
    #[serde(flatten)]
    measured: Option<Numbers>,
}

#[derive(Debug, Serialize)]
struct Numbers {
    requests: usize,
    bytes: u64,
    queued_seconds: f64,
    completed_seconds: f64,
    free_share: f64,
    out_of_order: usize,
    classes: BTreeMap<&'static str, usize>,
    verdict: &'static str,
    kernel_workers: Option<usize>,
    reasons: Vec<ReasonReport>,
}

#[derive(Debug, Serialize)]
struct ReasonReport {
    reason: &'static str,
    message: String,
    evidence: String,
    remedy: &'static str,
    remedy_message: String,
    /// Seconds until all were done, with the remedy.
    remedy_completed_seconds: Option<f64>,
    remedy_free_share: Option<f64>,
    remedy_verdict: Option<&'static str>,
}

/// Returns the report on one line.
pub(super) fn text(report: &Diagnosis) -> serde_json::Result<String> {
    let refused = report.unavailable_backends.iter().map(|step| RefusedReport {
        backend: step.backend.name(),
        reason: step.reason.name(),
        message: step.reason.to_string(),
    });
    serde_json::to_string(&DiskReport {
        schema: "pipewright.disk/1",
        path: report.path.to_string_lossy().into_owned(),
        filesystem: report.filesystem.as_deref(),
        backend: report.backend.map(|backend| backend.name()),
        refused: refused.collect(),
        unjudged: report
            .unjudged
            .map(|reason| UnjudgedReport { reason: reason.name(), message: reason.to_string() }),
        requests: report.options.requests,
        block_bytes: report.options.block_bytes,
        sentence: super::sentence::lead(report),
        tests: report.tests.iter().map(test_of).collect(),
    })
}

fn test_of(found: &TestReport) -> TestSummary {
    let (outcome, message, measured) = match &found.outcome {
        TestOutcome::Measured(measured) => ("measured", None, Some(numbers(measured))),
        TestOutcome::NotPossible(reason) => ("not_possible", Some(reason.clone()), None),
        TestOutcome::Failed(reason) => ("failed", Some(reason.clone()), None),
    };
    TestSummary {
        test: found.test.to_string(),
        asynchronous: found.test.asynchronous,
        direct: found.test.direct,
        work: found.test.work.name(),
        outcome,
        message,
        measured,
    }
}

fn numbers(measured: &Measured) -> Numbers {
    let evidence = &measured.evidence;
    let reasons = measured.findings.iter().map(|finding| ReasonReport {
        reason: finding.reason.name(),
        message: finding.reason.to_string(),
        evidence: finding.evidence.clone(),
        remedy: finding.remedy.name(),
        remedy_message: finding.remedy.to_string(),
        remedy_completed_seconds: finding.effect.map(|it| it.completed.as_secs_f64()),
        remedy_free_share: finding.effect.map(|it| it.free_share),
        remedy_verdict: finding.effect.map(|it| it.verdict.name()),
    });
    Numbers {
        requests: evidence.requests,
        bytes: measured.bytes,
        queued_seconds: measured.queued.as_secs_f64(),
        completed_seconds: measured.completed.as_secs_f64(),
        free_share: measured.free_share(),
        out_of_order: measured.out_of_order,
        classes: Class::ALL.iter().map(|class| (class.name(), evidence.count(*class))).collect(),
        verdict: measured.verdict.name(),
        kernel_workers: evidence.kernel_workers,
        reasons: reasons.collect(),
    }
}
