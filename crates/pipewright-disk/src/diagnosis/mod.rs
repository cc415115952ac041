//! A diagnosis of disk I/O: measures if it is asynchronous, and if not, explains why and suggests remedies.

mod evidence;
mod measure;
mod reason;
mod scratch;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, thread};

use pipewright_os::host::host_info;

use crate::{BackendKind, Error, ErrorKind, Result, UnavailableBackend, Unjudged};
use scratch::DiagnosisTarget;

pub use evidence::{Evidence, Test, Verdict, Work};
pub use reason::{Effect, Finding, Reason, Remedy, reasons};

/// Measures whether reads and writes of a file, or of files in a folder, are asynchronous, and explains why they are
/// not.
///
/// An existing file is only read, unless [`DiagnoseOptions::write_existing`] is set. All other tests use
/// temporary files, which are removed. They are created in the given folder or, with
/// [`DiagnoseOptions::writes`], in the folder of the given file.
///
/// Each test runs on its own thread, because the kernel's io_uring threads belong to the thread that caused
/// them and outlive their use.
///
/// # Platform
/// Linux: every class is determined. Windows: the class follows from the status of each call. If not everything can
/// be judged (macOS, Wine), [`Report::unjudged`] is the reason. Under Wine the verdict on overlapped calls is
/// [`Verdict::Unknown`].
///
/// # Errors
/// The path cannot be opened, is empty, or is neither a file nor a folder nor a disk. [`ErrorKind::Limit`]: the buffers
/// of a test would not fit into memory. If no test succeeds, for example because no file can be created in the folder,
/// the error is that of the first test. If only some tests fail, the report contains their errors.
///
/// ```
/// use pipewright_disk::diagnosis::{DiagnoseOptions, diagnose};
/// let folder = std::env::temp_dir().join(format!("pipewright-diagnose-{}", std::process::id()));
/// std::fs::create_dir(&folder).unwrap();
/// let options = DiagnoseOptions { requests: 20, ..DiagnoseOptions::default() };
/// let report = diagnose(&folder, &options)?;
/// for test in &report.tests {
///     println!("{}", test);
/// }
/// # std::fs::remove_dir(&folder).unwrap();
/// # Ok::<(), pipewright_disk::Error>(())
/// ```
pub fn diagnose(path: impl AsRef<Path>, options: &DiagnoseOptions) -> Result<Report> {
    let path = path.as_ref();
    let wrong = |kind| Error::new("diagnose", Some(path), kind);
    if options.requests == 0 || options.block_bytes == 0 {
        return Err(wrong(ErrorKind::InvalidInput));
    }
    let found =
        std::fs::metadata(path).map_err(|error| Error::system("diagnose", Some(path), error))?;
    let bytes = (options.requests as u64).saturating_mul(options.block_bytes as u64);
    if host_info::free_memory_bytes().is_some_and(|left| bytes > left / 2) {
        return Err(wrong(ErrorKind::Limit {
            what: "not enough memory for the buffers of a test: lower the number of requests or the block size",
        }));
    }
    let target = DiagnosisTarget::new(path, &found, options)?;
    let (mut tests, mut first_error) = (Vec::new(), None);
    for test in selected_tests(found.is_dir(), options) {
        let outcome = match run(&target, test, options) {
            Ok(measured) => TestOutcome::Measured(Box::new(measured)),
            Err(error) if *error.kind() == ErrorKind::Unsupported => {
                TestOutcome::NotPossible(error.to_string())
            }
            Err(error) => {
                let outcome = TestOutcome::Failed(error.to_string());
                first_error.get_or_insert(error);
                outcome
            }
        };
        tests.push(TestReport { test, outcome });
    }
    let is_measured = |test: &TestReport| matches!(test.outcome, TestOutcome::Measured(_));
    match first_error {
        Some(error) if !tests.iter().any(is_measured) => Err(error),
        _ => {
            try_remedies(&run, &target, options, &mut tests);
            Ok(judge(path, options, tests))
        }
    }
}

/// Returns the selected tests in order. Direct tests come first, because they leave the cache as it was.
fn selected_tests(is_folder: bool, options: &DiagnoseOptions) -> Vec<Test> {
    let mut tests = Vec::new();
    for direct in [true, false] {
        for asynchronous in [true, false] {
            tests.push(Test { asynchronous, direct, work: Work::Read });
        }
    }
    if is_folder || options.writes || options.write_existing {
        for work in [Work::Overwrite, Work::Extend, Work::Preallocated, Work::Hole] {
            for direct in [true, false] {
                tests.push(Test { asynchronous: true, direct, work });
            }
        }
        tests.push(Test { asynchronous: true, direct: false, work: Work::Sync });
    }
    let is_wanted = |test: &Test| {
        options.synchronous.is_none_or(|synchronous| test.asynchronous != synchronous)
            && options.direct.is_none_or(|direct| test.direct == direct)
    };
    tests.retain(is_wanted);
    tests
}

/// Runs a test on its own thread.
fn run(target: &DiagnosisTarget, test: Test, options: &DiagnoseOptions) -> Result<Measured> {
    let no_thread = |error| Error::system("run a test on a thread", None, error);
    thread::scope(|scope| {
        let work = || measure::run(target, test, options);
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(no_thread)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(no_thread(std::io::Error::other("the thread panicked"))))
    })
}

/// The options of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnoseOptions {
    /// The number of requests per test. An asynchronous test submits all of them at once. Default: 500.
    pub requests: usize,
    /// The number of bytes per request. Default: 64 KiB.
    pub block_bytes: usize,
    /// The order of the requests' offsets. Default: [`Pattern::Random`].
    pub pattern: Pattern,
    /// Selects only synchronous tests (`true`) or only asynchronous ones (`false`). Default: `None`, both.
    pub synchronous: Option<bool>,
    /// Selects only tests with direct I/O (`true`) or only tests through the cache (`false`). Default: `None`, both.
    pub direct: Option<bool>,
    /// Includes writes to temporary files. They are always included for a folder. Default: false.
    pub writes: bool,
    /// Includes writes that overwrite the file itself, block by block, with its own contents. Concurrent changes by
    /// other programs are lost. Has no effect on a folder. Default: false.
    pub write_existing: bool,
    /// The backend for asynchronous tests. Default: [`BackendKind::Auto`].
    pub backend: BackendKind,
}

impl Default for DiagnoseOptions {
    fn default() -> DiagnoseOptions {
        DiagnoseOptions {
            requests: 500,
            block_bytes: 64 << 10,
            pattern: Pattern::Random,
            synchronous: None,
            direct: None,
            writes: false,
            write_existing: false,
            backend: BackendKind::Auto,
        }
    }
}

/// The order of the requests' offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Every block once, in a pseudo-random order.
    #[default]
    Random,
    /// Ascending.
    Sequential,
}

/// A function that runs a test on a file.
type RunTest<'a> = &'a dyn Fn(&DiagnosisTarget, Test, &DiagnoseOptions) -> Result<Measured>;

// The effects of remedies: taken from another test of the report, or measured by repeating the test.

/// Adds the effect of its remedy to each finding, if it can be measured.
fn try_remedies(
    run: RunTest<'_>,
    target: &DiagnosisTarget,
    options: &DiagnoseOptions,
    tests: &mut [TestReport],
) {
    let effects: Vec<(Test, Effect)> = tests
        .iter()
        .filter_map(|report| Some((report.test, measured(&report.outcome)?.effect())))
        .collect();
    for TestReport { test, outcome } in tests {
        let TestOutcome::Measured(measured) = outcome else { continue };
        for finding in &mut measured.findings {
            finding.effect = match finding.tried {
                Some(tried) => effects.iter().find(|(test, _)| *test == tried).map(|it| it.1),
                // A test that fails shows no effect.
                None => once_more(run, target, *test, options, finding.remedy),
            };
        }
    }
}

fn measured(outcome: &TestOutcome) -> Option<&Measured> {
    match outcome {
        TestOutcome::Measured(measured) => Some(measured),
        TestOutcome::NotPossible(_) | TestOutcome::Failed(_) => None,
    }
}

/// Repeats a test with the remedy. `None` if no test can try the remedy.
fn once_more(
    run: RunTest<'_>,
    target: &DiagnosisTarget,
    test: Test,
    options: &DiagnoseOptions,
    remedy: Remedy,
) -> Option<Effect> {
    let backend = |backend| DiagnoseOptions { backend, ..*options };
    let (target, options) = match remedy {
        Remedy::Aio | Remedy::AioOrDefragment | Remedy::AioOrOnePage | Remedy::AioOrLazytime => {
            (target.clone(), backend(BackendKind::Aio))
        }
        Remedy::Threads => (target.clone(), backend(BackendKind::Threads)),
        // The first run has already synced.
        Remedy::Sync => (target.clone(), *options),
        Remedy::NoCopyOnWrite => (target.without_copy_on_write()?, *options),
        _ => return None,
    };
    run(&target, test, &options).ok().map(|measured| measured.effect())
}

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
    fn effect(&self) -> Effect {
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
fn judge(path: &Path, options: &DiagnoseOptions, tests: Vec<TestReport>) -> Report {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_starts_with_the_four_reads_and_honours_filters() {
        let options = DiagnoseOptions::default();
        assert_eq!(selected_tests(false, &options).len(), 4);
        assert_eq!(selected_tests(true, &options).len(), 13);
        let only = DiagnoseOptions { direct: Some(true), synchronous: Some(false), ..options };
        let only = selected_tests(true, &only);
        assert_eq!(only.len(), 5);
        assert_eq!(only[0].to_string(), "asynchronous, direct reads");
    }
}
