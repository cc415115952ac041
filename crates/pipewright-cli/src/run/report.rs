//! The JSON report of a run, described in `docs/json.md`, and its destination.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pipewright::{
    Captured, Containment, Error, ExitStatus, Handle, HeldLimits, OutOfMemory, Outcome, Output,
    Source, TreeUsage, Usage,
};
use pipewright_os::base::error::Quoted;
use pipewright_os::base::late_open::{self, LateOpen};
use pipewright_os::base::{private_file, service_thread, stdio};
use serde::Serialize;

use super::ending::{Kept, Retries};
use crate::args::{CommonOptions, RunOptions};
use crate::print::is_reader_gone;
use crate::{Failure, exit_code, print_error};

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    schema: &'static str,
    command: Vec<String>,
    #[serde(flatten)]
    ended: EndReport,
    attempts: u32,
    total_seconds: f64,
}

/// Result and resource usage of a command or a pipeline.
#[derive(Debug, Serialize)]
pub(crate) struct EndReport {
    pid: Option<u32>,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    elapsed_seconds: f64,
    #[serde(flatten)]
    used: Used,
    stdout_bytes: Option<u64>,
    stderr_bytes: Option<u64>,
    held_open: bool,
    truncated: bool,
    containment: Containment,
    leftovers_killed: u32,
    limits: Option<Box<HeldLimits>>,
    tree: Option<Box<TreeUsage>>,
    out_of_memory: Option<OutOfMemory>,
    error: Option<ErrorReport>,
}

impl EndReport {
    pub(crate) fn new<T>(result: Result<&Captured<T>, &Error>) -> EndReport {
        match result {
            Err(error) => EndReport::without_start(error),
            Ok(captured) => EndReport::of(captured),
        }
    }

    fn of<T>(captured: &Captured<T>) -> EndReport {
        EndReport {
            pid: Some(captured.pid),
            outcome: captured.outcome.name(),
            exit_code: captured.status.code(),
            signal: signal_of(captured.status),
            elapsed_seconds: captured.elapsed.as_secs_f64(),
            used: Used::of(captured.usage),
            stdout_bytes: captured.stdout_bytes,
            stderr_bytes: captured.stderr_bytes,
            held_open: captured.held_open,
            // Output that only passes through is dropped by design, and does not count.
            truncated: captured.outcome == Outcome::LimitExceeded,
            containment: captured.containment,
            leftovers_killed: captured.leftovers_killed,
            limits: captured.limits.clone().filter(|held| held.is_asked_for()),
            tree: captured.tree_usage.clone(),
            out_of_memory: captured.out_of_memory,
            error: None,
        }
    }

    fn without_start(error: &Error) -> EndReport {
        EndReport {
            pid: None,
            outcome: "not_started",
            exit_code: None,
            signal: None,
            elapsed_seconds: 0.0,
            used: Used::default(),
            stdout_bytes: None,
            stderr_bytes: None,
            held_open: false,
            truncated: false,
            containment: Containment::None,
            leftovers_killed: 0,
            limits: None,
            tree: None,
            out_of_memory: None,
            error: Some(ErrorReport { kind: error.kind().name(), message: error.to_string() }),
        }
    }
}

/// Returns the name of the signal that killed the command.
pub(crate) fn signal_of(status: ExitStatus) -> Option<String> {
    status.terminating_signal().map(|signal| signal.to_string())
}

/// The error of a command that was not started, or whose status was lost.
#[derive(Debug, Serialize)]
struct ErrorReport {
    kind: &'static str,
    message: String,
}

/// Resource usage of a process.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Used {
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    context_switches: Option<u64>,
}

impl Used {
    pub(crate) fn of(usage: Option<Usage>) -> Used {
        Used {
            user_seconds: usage.map(|usage| usage.user.as_secs_f64()),
            system_seconds: usage.map(|usage| usage.system.as_secs_f64()),
            peak_rss_bytes: usage.and_then(|usage| usage.peak_rss_bytes),
            context_switches: usage.and_then(|usage| usage.switches),
        }
    }
}

/// Prints the captured output, and returns the exit code: 125 if it cannot be printed.
pub(super) fn show_captured(kept: &Kept, options: &RunOptions, code: i32) -> i32 {
    let mut stdout = stdio::stdout();
    let shown = kept.write(Source::Stdout, options.tail, &mut stdout);
    let shown = shown.and_then(|()| stdout.flush());
    let shown = [shown, kept.write(Source::Stderr, options.tail, &mut io::stderr())];
    match shown.into_iter().filter_map(Result::err).find(|error| !is_reader_gone(error)) {
        Some(error) => fail("print the captured output", &error, code),
        None => code,
    }
}

/// Prints the error, with the exit code that it replaces.
pub(super) fn fail(action: &str, error: &io::Error, code: i32) -> i32 {
    print_error(&format!("cannot {action}: {error}; the exit code would have been {code}"));
    exit_code::OWN_FAILURE
}

impl RunReport {
    pub(super) fn new(
        options: &RunOptions,
        result: &Result<Output, Error>,
        retries: &Retries<'_>,
        kept: &Kept,
    ) -> RunReport {
        let mut ended = EndReport::new(result.as_ref());
        ended.truncated |= kept.is_cut();
        RunReport {
            schema: "pipewright.run/1",
            command: lossy(&options.command),
            ended,
            attempts: retries.attempts(),
            total_seconds: retries.elapsed().as_secs_f64(),
        }
    }
}

/// Converts words to Unicode for JSON; invalid bytes are replaced.
pub(crate) fn lossy(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The destination of a report. It is opened before the command runs, so that a report that cannot be written costs no
/// run.
#[derive(Debug)]
pub(crate) struct ReportTarget {
    place: Arc<Place>,
    /// The command has a timeout, so its report has [`PATIENCE`], too.
    is_timed: bool,
}

#[derive(Debug)]
enum Place {
    Stdout,
    Descriptor(File, i32),
    /// True: no other user can read it.
    File(PathBuf, bool),
    /// A named pipe, which may have no reader yet.
    Pipe(PathBuf, LateOpen),
}

/// The time that the reader or the disk of a report has after the end of a command with a timeout.
const PATIENCE: Duration = Duration::from_secs(5);

impl ReportTarget {
    /// Opens the destination, if a report is wanted. An older file keeps its content until the report is written.
    pub(crate) fn open(options: &CommonOptions) -> Result<Option<ReportTarget>, Failure> {
        let Some(path) = options.report() else { return Ok(None) };
        let place = Arc::new(Place::open(path, options.private)?);
        Ok(Some(ReportTarget { place, is_timed: options.timeout.is_some() }))
    }

    /// Writes the report on one line. Returns the exit code: 125 if the report cannot be written. A reader that has
    /// gone is no failure.
    pub(crate) fn write_or_fail(self, report: &impl Serialize, code: i32) -> i32 {
        match self.write(report) {
            Ok(()) => code,
            Err(error) if is_reader_gone(&error) => code,
            Err(error) => fail(&self.place.action(), &error, code),
        }
    }

    fn write(&self, report: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(report)?;
        text.push('\n');
        if !self.is_timed {
            return self.place.write(&text);
        }
        let (done, is_done) = mpsc::channel();
        let (place, of_thread) = (Arc::clone(&self.place), text.clone());
        // Ignored in the thread: nobody waits any more.
        let write = move || drop(done.send(place.write(&of_thread)));
        match service_thread::start(c"report", write) {
            Ok(()) => {
                is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(self.place.unanswered()))
            }
            // There is no room for a thread.
            Err(_) => self.place.write(&text),
        }
    }
}

impl Place {
    fn open(path: &Path, is_private: bool) -> Result<Place, Failure> {
        if path.as_os_str() == "-" {
            let cannot = Failure::cannot("write the report to stdout");
            return stdio::fail_if_closed(1).map(|()| Place::Stdout).map_err(cannot);
        }
        let number = path.to_str().and_then(|text| text.strip_prefix("fd:"));
        if let Some(number) = number.and_then(|number| number.parse::<i32>().ok()) {
            return descriptor(number);
        }
        if late_open::waits(path) {
            let create = move |path: &Path| private_file::create(path, is_private);
            let open = LateOpen::start_with(path, create, || {});
            let open =
                open.map_err(|error| Failure(format!("cannot {}: {error}", action(path))))?;
            return Ok(Place::Pipe(path.to_owned(), open));
        }
        if has_content(path) {
            let opened = private_file::open(path, File::options().create(true).append(true));
            opened.map_err(|error| Failure(format!("cannot {}: {error}", action(path))))?;
        }
        Ok(Place::File(path.to_owned(), is_private))
    }

    /// Writes the report. The wait for a reader or for the disk has no limit.
    fn write(&self, text: &str) -> io::Result<()> {
        match self {
            Place::Stdout => stdio::stdout().write_all(text.as_bytes()),
            Place::Descriptor(file, _) => {
                let mut file: &File = file;
                file.write_all(text.as_bytes())
            }
            Place::File(path, is_private) => {
                private_file::create(path, *is_private)?.write_all(text.as_bytes())
            }
            Place::Pipe(_, open) => {
                let opened = open.wait(None).unwrap_or_else(|| Err(self.unanswered()));
                opened?.write_all(text.as_bytes())
            }
        }
    }

    /// Returns the error of a report that nobody has taken in time.
    fn unanswered(&self) -> io::Error {
        let words = match self {
            Place::Stdout | Place::Descriptor(..) => "its reader did not take it in time",
            Place::File(..) => "it did not answer in time",
            Place::Pipe(..) => "no other process has opened it",
        };
        io::Error::new(io::ErrorKind::TimedOut, words)
    }

    fn action(&self) -> String {
        match self {
            Place::Stdout => action(Path::new("-")),
            Place::Descriptor(_, number) => action(Path::new(&format!("fd:{number}"))),
            Place::File(path, _) | Place::Pipe(path, _) => action(path),
        }
    }
}

/// Opens a descriptor that this process has inherited.
fn descriptor(number: i32) -> Result<Place, Failure> {
    let was_closed = u8::try_from(number).map_or(Ok(()), stdio::fail_if_closed);
    let handle = was_closed.and_then(|()| Handle::copy_of_number(number));
    handle
        .map(|handle| Place::Descriptor(handle.into(), number))
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
