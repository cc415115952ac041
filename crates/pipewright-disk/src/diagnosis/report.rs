//! What a diagnosis says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DiagnoseOptions, Evidence, Finding, Test};
use crate::{BackendKind, Class, Step, Unjudged};

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
    pub steps: Vec<Step>,
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

/// Whether the requests of a test were asynchronous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The disk worked while the caller went on.
    Asynchronous,
    /// Some were, some were not.
    Partly,
    /// Threads waited in the caller's place.
    Workers,
    /// Done inside the call, from memory.
    Cached,
    /// The caller waited, though it had asked not to.
    Blocked,
    /// The caller waited, as it had asked for.
    Synchronous,
    /// It cannot be told here.
    Unknown,
}

impl Verdict {
    /// The verdict on a test.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Verdict {
        const MOST: usize = 95;
        const PUT_OFF: [Class; 3] = [Class::AsyncDevice, Class::InlineCached, Class::Worker];
        let asynchronous = [Class::AsyncDevice, Class::AsyncPageWait];
        if !evidence.test.asynchronous {
            Verdict::Synchronous
        } else if evidence.known() == 0 || is_imitated(evidence) {
            Verdict::Unknown
        } else if evidence.tick().is_some() && evidence.is_mostly(&PUT_OFF, 50) {
            // Which share it was is the luck of this run.
            Verdict::Partly
        } else if evidence.is_mostly(&asynchronous, MOST) {
            Verdict::Asynchronous
        } else if evidence.is_mostly(&[Class::Worker], MOST) {
            Verdict::Workers
        } else if evidence.is_mostly(&[Class::InlineCached], MOST) {
            Verdict::Cached
        } else if evidence.is_mostly(&[Class::InlineBlocked, Class::PendingButDone], MOST) {
            Verdict::Blocked
        } else {
            Verdict::Partly
        }
    }

    /// A name for machines, which stays as it is: `asynchronous`, `workers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Asynchronous => "asynchronous",
            Verdict::Partly => "partly",
            Verdict::Workers => "workers",
            Verdict::Cached => "cached",
            Verdict::Blocked => "blocked",
            Verdict::Synchronous => "synchronous",
            Verdict::Unknown => "unknown",
        }
    }
}

/// What the system said is not what the real one says. Threads of the engine are its own.
fn is_imitated(evidence: &Evidence) -> bool {
    evidence.unjudged == Some(Unjudged::Imitation) && evidence.backend == BackendKind::Overlapped
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Asynchronous => "truly asynchronous",
            Verdict::Partly => "partly asynchronous",
            Verdict::Workers => "not asynchronous: threads waited",
            Verdict::Cached => "synchronous: from memory",
            Verdict::Blocked => "not asynchronous: the caller waited",
            Verdict::Synchronous => "synchronous, as asked",
            Verdict::Unknown => "cannot be told here",
        })
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
    let (backend, steps) = (first.map(|it| it.backend), first.map(|it| it.steps.clone()));
    let filesystem = evidence.clone().find_map(|it| it.facts.filesystem).map(|it| it.name());
    let steps = steps.unwrap_or_default();
    let (path, options, unjudged) = (path.to_owned(), *options, Unjudged::here());
    Report { path, options, backend, steps, unjudged, filesystem, tests }
}
