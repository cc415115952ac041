//! A diagnosis of disk I/O: measures if it is asynchronous, and if not, explains why and suggests remedies.

mod evidence;
mod measure;
mod options;
mod plan;
mod reason;
mod report;
mod scratch;
mod try_remedies;
mod verdict;

use std::path::Path;
use std::thread;

use pipewright_os::host::host_info;

use crate::{Error, ErrorKind, Result};

pub use evidence::Evidence;
pub use options::{DiagnoseOptions, Pattern};
pub use plan::{Test, Work};
pub use reason::{Effect, Finding, Reason, Remedy, reasons};
pub use report::{Measured, Report, TestOutcome, TestReport};
pub use verdict::Verdict;

/// Measures whether reads and writes of a file, or of files in a folder, are asynchronous, and explains why they are not.
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
    let target = scratch::DiagnosisTarget::new(path, &found, options)?;
    let (mut tests, mut first_error) = (Vec::new(), None);
    for test in plan::tests(found.is_dir(), options) {
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
            try_remedies::try_remedies(&run, &target, options, &mut tests);
            Ok(report::judge(path, options, tests))
        }
    }
}

/// Runs a test on its own thread.
fn run(
    target: &scratch::DiagnosisTarget,
    test: Test,
    options: &DiagnoseOptions,
) -> Result<Measured> {
    let no_thread = |error| Error::system("run a test on a thread", None, error);
    thread::scope(|scope| {
        let work = || measure::run(target, test, options);
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(no_thread)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(no_thread(std::io::Error::other("the thread panicked"))))
    })
}
