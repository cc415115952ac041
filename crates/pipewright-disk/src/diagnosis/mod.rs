//! Is disk I/O asynchronous here, and why not: measured, judged, and with what can be done about it.

mod evidence;
mod measure;
mod options;
mod plan;
mod reason;
mod report;
mod scratch;

use std::path::Path;
use std::thread;

use crate::{Error, ErrorKind, Result};

pub use evidence::Evidence;
pub use options::{DiagnoseOptions, Pattern};
pub use plan::{Test, Work};
pub use reason::{Finding, Reason, Remedy, reasons};
pub use report::{Measured, Outcome, Report, TestReport, Verdict};

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
/// The path cannot be opened; a file is empty; no file can be made in the folder. What goes wrong in one test
/// is told by it.
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
    let subject = scratch::Subject::new(path, found.is_dir(), options)?;
    let mut tests = Vec::new();
    for test in plan::tests(found.is_dir(), options) {
        let run = || measure::run(&subject, test, options);
        let outcome =
            thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, run) {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Outcome::Failed("it panicked".to_owned()))
                }
                Err(error) => Outcome::Failed(error.to_string()),
            });
        tests.push(TestReport { test, outcome });
    }
    Ok(report::judge(path, options, tests))
}
