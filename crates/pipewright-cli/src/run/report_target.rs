//! The destination of a report: opened before the command runs, so that a report that cannot be written costs no run.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::Quoted;
use pipewright_os::base::stdio;
use serde::Serialize;

use super::report::fail;
use crate::Failure;
use crate::args::CommonOptions;
use crate::print::is_reader_gone;

/// The destination of a report.
#[derive(Debug)]
pub(crate) enum ReportTarget {
    Stdout,
    File(PathBuf),
}

impl ReportTarget {
    /// Opens the destination, if a report is wanted. An older file keeps its content until the report is written.
    pub(crate) fn open(options: &CommonOptions) -> Result<Option<ReportTarget>, Failure> {
        let Some(path) = options.report() else { return Ok(None) };
        if path.as_os_str() == "-" {
            let cannot = Failure::cannot("write the report to stdout");
            return stdio::fail_if_closed(1).map(|()| Some(ReportTarget::Stdout)).map_err(cannot);
        }
        // The open of a FIFO would wait for its reader.
        if has_content(path) {
            let opened = File::options().create(true).append(true).open(path);
            opened.map_err(|error| Failure(format!("cannot {}: {error}", action(path))))?;
        }
        Ok(Some(ReportTarget::File(path.to_owned())))
    }

    /// Writes the report on one line. Returns the exit code: 125 if the report cannot be written. A reader that has gone is
    /// no failure.
    pub(crate) fn write_or_fail(self, report: &impl Serialize, code: i32) -> i32 {
        match self.write(report) {
            Ok(()) => code,
            Err(error) if is_reader_gone(&error) => code,
            Err(error) => fail(&self.action(), &error, code),
        }
    }

    fn write(&self, report: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(report)?;
        text.push('\n');
        match self {
            ReportTarget::Stdout => stdio::stdout().write_all(text.as_bytes()),
            ReportTarget::File(path) => fs::write(path, text),
        }
    }

    fn action(&self) -> String {
        match self {
            ReportTarget::Stdout => action(Path::new("-")),
            ReportTarget::File(path) => action(path),
        }
    }
}

fn action(path: &Path) -> String {
    format!("write the report to {}", Quoted(path.as_os_str()))
}

/// Returns true for a file or a device, and for a path that does not exist yet.
fn has_content(path: &Path) -> bool {
    use std::fs::Metadata;
    let is_plain = |found: Metadata| found.is_file() || found.is_dir();
    fs::metadata(path).map_or(true, is_plain)
}
