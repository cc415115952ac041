//! The destination of a report: opened before the command runs, so that a report that cannot be written costs no run.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright::Handle;
use pipewright_os::base::error::Quoted;
use pipewright_os::base::late_open::{self, LateOpen};
use pipewright_os::base::{private_file, stdio};
use serde::Serialize;

use super::report::fail;
use crate::Failure;
use crate::args::CommonOptions;
use crate::print::is_reader_gone;

/// The destination of a report.
#[derive(Debug)]
pub(crate) enum ReportTarget {
    Stdout,
    Descriptor(File, i32),
    /// True: no other user can read it.
    File(PathBuf, bool),
    /// A named pipe, which may have no reader yet, and the time for one to come after the end of the command.
    Pipe(PathBuf, LateOpen, Option<Duration>),
}

const NO_READER: &str = "no other process has opened it";

/// The time that the reader of a pipe has, if the command has a timeout.
const READER_PATIENCE: Duration = Duration::from_secs(5);

impl ReportTarget {
    /// Opens the destination, if a report is wanted. An older file keeps its content until the report is written.
    pub(crate) fn open(options: &CommonOptions) -> Result<Option<ReportTarget>, Failure> {
        let Some(path) = options.report() else { return Ok(None) };
        if path.as_os_str() == "-" {
            let cannot = Failure::cannot("write the report to stdout");
            return stdio::fail_if_closed(1).map(|()| Some(ReportTarget::Stdout)).map_err(cannot);
        }
        let number = path.to_str().and_then(|text| text.strip_prefix("fd:"));
        if let Some(number) = number.and_then(|number| number.parse::<i32>().ok()) {
            return descriptor(number).map(Some);
        }
        if late_open::waits(path) {
            let is_private = options.private;
            let create = move |path: &Path| private_file::create(path, is_private);
            let open = LateOpen::start_with(path, create, || {});
            let open =
                open.map_err(|error| Failure(format!("cannot {}: {error}", action(path))))?;
            let patience = options.timeout.is_some().then_some(READER_PATIENCE);
            return Ok(Some(ReportTarget::Pipe(path.to_owned(), open, patience)));
        }
        if has_content(path) {
            let opened = private_file::open(path, File::options().create(true).append(true));
            opened.map_err(|error| Failure(format!("cannot {}: {error}", action(path))))?;
        }
        Ok(Some(ReportTarget::File(path.to_owned(), options.private)))
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
            ReportTarget::Descriptor(file, _) => {
                let mut file: &File = file;
                file.write_all(text.as_bytes())
            }
            ReportTarget::File(path, is_private) => {
                private_file::create(path, *is_private)?.write_all(text.as_bytes())
            }
            ReportTarget::Pipe(_, open, patience) => {
                let until = patience.and_then(|patience| Instant::now().checked_add(patience));
                let nobody = || io::Error::new(io::ErrorKind::TimedOut, NO_READER);
                let opened = open.wait(until).unwrap_or_else(|| Err(nobody()));
                opened?.write_all(text.as_bytes())
            }
        }
    }

    fn action(&self) -> String {
        match self {
            ReportTarget::Stdout => action(Path::new("-")),
            ReportTarget::Descriptor(_, number) => action(Path::new(&format!("fd:{number}"))),
            ReportTarget::File(path, _) | ReportTarget::Pipe(path, ..) => action(path),
        }
    }
}

/// Opens a descriptor that this process has inherited.
fn descriptor(number: i32) -> Result<ReportTarget, Failure> {
    let was_closed = u8::try_from(number).map_or(Ok(()), stdio::fail_if_closed);
    let handle = was_closed.and_then(|()| Handle::copy_of_number(number));
    handle
        .map(|handle| ReportTarget::Descriptor(handle.into(), number))
        .map_err(|error| Failure(format!("cannot write the report to fd:{number}: {error}")))
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
