//! Files that are named twice, under one path or under two.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::Quoted;
use pipewright_os::base::private_file;
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
        let _ = private_file::open(stdout, File::options().create(true).append(true));
    }
    is_one_file(stdout, stderr)
}

/// Refuses files for stdout and stderr that another user could have chosen by a link.
pub(super) fn check_links(options: &RunOptions) -> Result<(), Failure> {
    [file_of(&options.stdout), file_of(&options.stderr)]
        .into_iter()
        .flatten()
        .try_for_each(check_link)
}

/// Refuses a file to write that another user could have chosen by a link.
pub(crate) fn check_link(path: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure(format!("cannot write {}: {error}", Quoted(path.as_os_str())));
    private_file::check_link(path).map_err(cannot)
}

/// Refuses a file that one option would write while another one reads or writes it. Stdout and stderr may share one.
pub(super) fn check(options: &RunOptions) -> Result<(), Failure> {
    let report = options.common.report().filter(|path| path.as_os_str() != "-");
    let written = [
        ("--report", report),
        ("--record", options.record.as_deref()),
        ("--stdout", file_of(&options.stdout)),
        ("--stderr", file_of(&options.stderr)),
    ];
    let stdin = options.stdin.as_deref().map(Path::new);
    let stdin = stdin.filter(|path| matches!(OutputTarget::of(path), OutputTarget::File(_)));
    let env_files = options.common.env_file.iter().map(|path| ("--env-file", Some(path.as_path())));
    let read: Vec<_> = [("--stdin", stdin)].into_iter().chain(env_files).collect();
    for (index, (name, path)) in written.iter().enumerate() {
        let others = written.iter().skip(index + 1).chain(&read);
        for (other, other_path) in
            others.filter(|(other, _)| *name != "--stdout" || *other != "--stderr")
        {
            if let (Some(path), Some(other_path)) = (path, other_path) {
                if is_one_file(path, other_path) || (path == other_path && !path.exists()) {
                    return Err(Failure(format!(
                        "{name} would overwrite {}, the file of {other}; choose another file",
                        Quoted(other_path.as_os_str())
                    )));
                }
            }
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
