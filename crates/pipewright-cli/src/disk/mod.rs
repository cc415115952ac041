//! `pipewright disk`: tests if disk I/O is asynchronous, and explains why it is not.

mod html;
mod text;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_disk::Class;
use pipewright_disk::diagnosis::{Measured, Report, TestOutcome, TestReport, diagnose};
use pipewright_os::base::private_file;
use pipewright_os::disk::file;
use serde::Serialize;

use crate::args::DiskOptions;
use crate::print::print;
use crate::{Failure, exit_code, print_error};

/// Diagnoses each path and prints the result. An error for one path does not stop the others.
pub(crate) fn run(options: &DiskOptions) -> Result<i32, Failure> {
    let page = options.html.as_ref().map(|path| Page::new(path, &options.paths)).transpose()?;
    let (mut reports, mut code) = (Vec::new(), exit_code::SUCCESS);
    for path in &options.paths {
        match diagnose(path, &options.diagnose()) {
            Err(error) => {
                print_error(&error.to_string());
                code = exit_code::OWN_FAILURE;
            }
            Ok(report) => {
                let text = text_of(options.json, reports.is_empty(), &report);
                print(text.map_err(Failure::cannot("print the diagnosis"))?)?;
                reports.push(report);
            }
        }
    }
    if let Some(page) = page {
        page.write(&reports)?;
    }
    Ok(code)
}

/// The HTML page.
#[derive(Debug)]
struct Page {
    path: PathBuf,
    /// The file did not exist before.
    is_new: bool,
}

impl Page {
    /// Opens the file before the first test, so that an error is known at once. Its content stays until the page is
    /// written.
    fn new(path: &Path, read: &[PathBuf]) -> Result<Page, Failure> {
        // A page that does not exist yet is none of the tested files.
        let is_same = |other: &&PathBuf| file::is_same(path, other).unwrap_or(false);
        if let Some(same) = read.iter().find(is_same) {
            return Err(Failure(format!(
                "--html would overwrite {same:?}, a file to test; choose another file"
            )));
        }
        let is_new = fs::symlink_metadata(path).is_err();
        private_file::open(path, File::options().create(true).append(true))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))?;
        Ok(Page { path: path.to_owned(), is_new })
    }

    fn write(self, reports: &[Report]) -> Result<(), Failure> {
        if reports.is_empty() {
            if self.is_new {
                // Ignored: an empty file does no harm.
                let _ = fs::remove_file(&self.path);
            }
            return Ok(());
        }
        let path = self.path;
        private_file::create(&path, false)
            .and_then(|mut file| file.write_all(html::page(reports).as_bytes()))
            .map_err(|error| Failure(format!("cannot write the HTML page to {path:?}: {error}")))
    }
}

/// Returns the text to print for a diagnosis.
fn text_of(as_json: bool, is_first: bool, report: &Report) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if as_json {
        writeln!(text, "{}", json_of(report)?)?;
    } else {
        if !is_first {
            writeln!(text)?;
        }
        text::write(&mut text, report)?;
    }
    Ok(text)
}

/// The JSON object of a diagnosis, described in `docs/json.md`. Fields are only ever added.
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
fn json_of(report: &Report) -> serde_json::Result<String> {
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
        sentence: text::lead(report),
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
