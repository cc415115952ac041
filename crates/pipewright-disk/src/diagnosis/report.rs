//! What a diagnosis says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::evidence::Evidence;
use super::options::DiagnoseOptions;
use super::plan::Test;
use super::reason::{Effect, Finding};
use super::verdict::Verdict;
use crate::{BackendKind, UnavailableBackend, Unjudged};

/// What was found out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// What was diagnosed.
    pub path: PathBuf,
    /// What was asked for.
    pub options: DiagnoseOptions,
    /// What carried the asynchronous tests out; `None`: none of them could be made.
    pub backend: Option<BackendKind>,
    /// The better ways that are not to be had here, each with the reason.
    pub unavailable_backends: Vec<UnavailableBackend>,
    /// Why not everything could be judged; `None`: it could.
    pub unjudged: Option<Unjudged>,
    /// The name of the filesystem, where it is known.
    pub filesystem: Option<String>,
    /// The tests, in the order in which they were made.
    pub tests: Vec<TestReport>,
}

/// What became of one test.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TestReport {
    /// Which it was.
    pub test: Test,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a test.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It was made.
    Measured(Box<Measured>),
    /// The filesystem cannot do that, and says so.
    NotPossible(String),
    /// It went wrong.
    Failed(String),
}

/// What a test measured.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measured {
    /// How long the calls took that handed all requests over.
    pub queued: Duration,
    /// How long it took until all were done, from the first of those calls.
    pub completed: Duration,
    /// How many bytes were moved.
    pub bytes: u64,
    /// How many requests were done after one that had been asked for later.
    pub out_of_order: usize,
    /// Whether it was asynchronous.
    pub verdict: Verdict,
    /// Why not, the first explaining the most.
    pub findings: Vec<Finding>,
    /// What that is drawn from.
    pub evidence: Evidence,
}

impl Measured {
    /// Returns what a remedy achieved, if this test was made with it.
    pub(super) fn effect(&self) -> Effect {
        Effect { completed: self.completed, free_share: self.free_share(), verdict: self.verdict }
    }

    /// The share of the time that the caller had for itself, from 0 to 1.
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
            Outcome::Measured(measured) => write!(f, "{}: {}", self.test, measured.verdict),
            Outcome::NotPossible(why) | Outcome::Failed(why) => write!(f, "{}: {why}", self.test),
        }
    }
}

impl Report {
    /// What a test measured, if it was made.
    #[must_use]
    pub fn measured(&self, test: Test) -> Option<&Measured> {
        let found = self.tests.iter().find(|report| report.test == test)?;
        match &found.outcome {
            Outcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }
}

/// Puts the tests together.
pub(super) fn judge(path: &Path, options: &DiagnoseOptions, tests: Vec<TestReport>) -> Report {
    let evidence = tests.iter().filter_map(|report| match &report.outcome {
        Outcome::Measured(measured) => Some(&measured.evidence),
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
