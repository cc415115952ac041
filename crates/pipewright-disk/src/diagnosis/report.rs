//! The report of a diagnosis.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::evidence::Evidence;
use super::options::DiagnoseOptions;
use super::plan::Test;
use super::reason::{Effect, Finding};
use super::verdict::Verdict;
use crate::{BackendKind, UnavailableBackend, Unjudged};

/// The result of a diagnosis.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The path that was diagnosed.
    pub path: PathBuf,
    /// The options of the diagnosis.
    pub options: DiagnoseOptions,
    /// The backend of the asynchronous tests. `None` if none succeeded.
    pub backend: Option<BackendKind>,
    /// The preferred backends that are unavailable here, each with the reason.
    pub unavailable_backends: Vec<UnavailableBackend>,
    /// The reason why not everything could be judged. `None` if everything could.
    pub unjudged: Option<Unjudged>,
    /// The name of the filesystem, if known.
    pub filesystem: Option<String>,
    /// The tests, in the order in which they ran.
    pub tests: Vec<TestReport>,
}

/// A test and its outcome.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TestReport {
    /// The test.
    pub test: Test,
    /// The outcome.
    pub outcome: TestOutcome,
}

/// The outcome of a test.
#[derive(Debug, Clone)]
pub enum TestOutcome {
    /// The measurement of a successful test.
    Measured(Box<Measured>),
    /// The error of an operation that the filesystem does not support.
    NotPossible(String),
    /// The error of a test that failed.
    Failed(String),
}

/// The measurement of a test.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measured {
    /// The time spent in the calls that submitted the requests.
    pub queued: Duration,
    /// The time from the first of these calls to the last completion.
    pub completed: Duration,
    /// The number of bytes transferred.
    pub bytes: u64,
    /// The number of requests that completed after one submitted later.
    pub out_of_order: usize,
    /// The verdict.
    pub verdict: Verdict,
    /// The reasons for the verdict, the most important first.
    pub findings: Vec<Finding>,
    /// The evidence for the verdict.
    pub evidence: Evidence,
}

impl Measured {
    /// Returns this measurement as the effect of a remedy that the test used.
    pub(super) fn effect(&self) -> Effect {
        Effect { completed: self.completed, free_share: self.free_share(), verdict: self.verdict }
    }

    /// Returns the share of the time in which the caller was free for other work, from 0 to 1.
    #[must_use]
    pub fn free_share(&self) -> f64 {
        if self.completed.is_zero() {
            return 0.0;
        }
        let share = self.queued.as_secs_f64() / self.completed.as_secs_f64();
        (1.0 - share).clamp(0.0, 1.0)
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            TestOutcome::Measured(measured) => write!(f, "{}: {}", self.test, measured.verdict),
            TestOutcome::NotPossible(reason) | TestOutcome::Failed(reason) => {
                write!(f, "{}: {reason}", self.test)
            }
        }
    }
}

impl Report {
    /// Returns the measurement of a test, if it succeeded.
    #[must_use]
    pub fn measured(&self, test: Test) -> Option<&Measured> {
        let found = self.tests.iter().find(|report| report.test == test)?;
        match &found.outcome {
            TestOutcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }
}

/// Assembles the report.
pub(super) fn judge(path: &Path, options: &DiagnoseOptions, tests: Vec<TestReport>) -> Report {
    let evidence = tests.iter().filter_map(|report| match &report.outcome {
        TestOutcome::Measured(measured) => Some(&measured.evidence),
        _ => None,
    });
    let first = evidence.clone().find(|evidence| evidence.test.asynchronous);
    let (backend, unavailable_backends) =
        (first.map(|it| it.backend), first.map(|it| it.unavailable_backends.clone()));
    let filesystem = evidence.clone().find_map(|it| it.facts.filesystem).map(|it| it.name());
    let unavailable_backends = unavailable_backends.unwrap_or_default();
    let (path, options, unjudged) = (path.to_owned(), *options, Unjudged::here());
    Report { path, options, backend, unavailable_backends, unjudged, filesystem, tests }
}
