//! Files that are named twice, under one path or under two.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::Quoted;
use pipewright_os::disk::file;

use super::command::OutputTarget;
use crate::Failure;
use crate::args::RunOptions;

/// Returns true if stdout and stderr go to the same file. Opened twice, each would overwrite the lines of the other.
pub(super) fn is_merged(options: &RunOptions) -> bool {
    let (Some(stdout), Some(stderr)) = (file_of(&options.stdout), file_of(&options.stderr)) else {
        return false;
    };
    if !stdout.exists() {
        // Ignored: the start of the command opens it again, and reports the error.
        let _ = File::options().create(true).append(true).open(stdout);
    }
    is_one_file(stdout, stderr)
}

/// Refuses a report that would overwrite the output.
pub(super) fn check_report(options: &RunOptions) -> Result<(), Failure> {
    let Some(report) = options.common.report().filter(|path| path.as_os_str() != "-") else {
        return Ok(());
    };
    for (name, target) in [("--stdout", &options.stdout), ("--stderr", &options.stderr)] {
        if let Some(path) = file_of(target).filter(|path| is_one_file(path, report)) {
            return Err(Failure(format!(
                "--report would overwrite {}, the file of {name}; choose another file",
                Quoted(path.as_os_str())
            )));
        }
    }
    Ok(())
}

fn file_of(target: &Option<PathBuf>) -> Option<&Path> {
    match OutputTarget::of(target.as_deref()?) {
        OutputTarget::File(path) => Some(path),
        _ => None,
    }
}

/// Returns true for one file, not for one device: a device has nothing to overwrite.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let is_file = fs::metadata(one).is_ok_and(|found| found.is_file());
    is_file && file::is_same(one, other).unwrap_or(false)
}
