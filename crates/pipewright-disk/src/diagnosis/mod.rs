//! Is disk I/O asynchronous here, and why not: measured, judged, and with what can be done about it.

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
pub use report::{Measured, Outcome, Report, TestReport};
pub use verdict::Verdict;

/// Measures how reads and writes of a file, or of files in a folder, are really done.
///
/// A file is read, and never written to, unless [`DiagnoseOptions::write_existing`] asks for it. Files of its own are made in the folder for everything else (in that
/// of the file, where [`DiagnoseOptions::writes`] asks for it), and removed.
///
/// Each test runs on a thread of its own: the kernel's threads for io_uring belong to the one that needs them,
/// and outlive the need.
///
/// # Platform
/// Linux: every class can be told. Windows: what the call said. Where not everything can be judged (macOS; Wine,
/// where the verdict on its calls is [`Verdict::Unknown`]), [`Report::unjudged`] says why.
///
/// # Errors
/// The path cannot be opened; it is empty, or neither a file nor a folder nor a disk; no test at all can be
/// made, as where no file can be made in the folder: then what went wrong in the first of them.
/// [`ErrorKind::Limit`]: the buffers of a test would not fit into memory. What goes wrong in some tests is told
/// by each.
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
            what: "the buffers of a test would not fit into memory",
        }));
    }
    let target = scratch::Target::new(path, &found, options)?;
    let (mut tests, mut first_error) = (Vec::new(), None);
    for test in plan::tests(found.is_dir(), options) {
        let outcome = match run(&target, test, options) {
            Ok(measured) => Outcome::Measured(Box::new(measured)),
            Err(error) if *error.kind() == ErrorKind::Unsupported => {
                Outcome::NotPossible(error.to_string())
            }
            Err(error) => {
                let outcome = Outcome::Failed(error.to_string());
                first_error.get_or_insert(error);
                outcome
            }
        };
        tests.push(TestReport { test, outcome });
    }
    let is_measured = |test: &TestReport| matches!(test.outcome, Outcome::Measured(_));
    match first_error {
        Some(error) if !tests.iter().any(is_measured) => Err(error),
        _ => {
            try_remedies::try_remedies(&run, &target, options, &mut tests);
            Ok(report::judge(path, options, tests))
        }
    }
}

/// Makes one test, on a thread of its own.
fn run(target: &scratch::Target, test: Test, options: &DiagnoseOptions) -> Result<Measured> {
    let no_thread = |error| Error::system("start a thread", None, error);
    thread::scope(|scope| {
        let work = || measure::run(target, test, options);
        let thread = thread::Builder::new().spawn_scoped(scope, work).map_err(no_thread)?;
        thread.join().unwrap_or_else(|_| Err(no_thread(std::io::Error::other("it panicked"))))
    })
}
