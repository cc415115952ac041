//! The error type: one line, with its facts.

mod start;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use pipewright_os::base::error::{OneLine, OsErrorKind, Quoted, os_error_kind, write_numbered};
use pipewright_os::process::limits::LimitUnavailable;
use pipewright_os::process::status::ExitStatus;

use crate::outcome::{Exceeded, Outcome, Source};

pub(crate) use start::{
    could_not_create_slot, could_not_open, could_not_open_terminal, could_not_prepare,
    could_not_start,
};

/// An error of a command, a child or a process: it could not be started or waited for, or it failed (only from
/// [`run`](crate::Command::run), [`read`](crate::Command::read) and [`check`](crate::Captured::check)).
///
/// Prints as one line, without the arguments: they may be long, or secret. The system's error, if there was one, is
/// the [`source`](std::error::Error::source). It survives the conversion to [`io::Error`], which keeps its kind.
///
/// ```
/// use pipewright::{Command, ErrorKind};
/// let error = Command::new("no-such-program").status().unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
/// assert!(error.to_string().starts_with(r#"cannot start "no-such-program": not found in PATH"#));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    program: OsString,
    operation: FailedOperation,
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The failed operation on a running child, in the words "cannot ...", and the system's error.
pub(crate) type OperationError = (&'static str, io::Error);

#[derive(Debug, Clone)]
pub(crate) enum FailedOperation {
    /// The start of the program.
    Start,
    /// The start of a pipeline, which has no program of its own.
    StartPipeline,
    /// The creation of a tree slot, which belongs to no program.
    CreateSlot,
    /// The last step of a start: the system refused to execute the program.
    Execute,
    /// A `pre_exec` closure.
    PreExec,
    /// A step that the start needs, in the words "cannot ...".
    Prepare(String),
    /// An operation on a running child, such as a wait, a read or a stop, in the words after "cannot".
    Child(&'static str),
    /// The child itself, which ran and failed.
    Run,
}

impl Error {
    pub(crate) fn new(
        program: &OsStr,
        operation: FailedOperation,
        kind: ErrorKind,
        source: Option<io::Error>,
    ) -> Error {
        Error(Box::new(ErrorFacts { program: program.to_owned(), operation, kind, source }))
    }

    /// Returns the error of a system call that failed for a running child.
    pub(crate) fn cannot(program: &OsStr, operation: &'static str, source: io::Error) -> Error {
        let kind = match os_error_kind(&source) {
            Some(OsErrorKind::Limit(what)) => ErrorKind::Limit { what },
            Some(OsErrorKind::StatusLost) => ErrorKind::StatusLost,
            Some(OsErrorKind::NoSuchProcess) => ErrorKind::NoSuchProcess,
            Some(OsErrorKind::Denied) => ErrorKind::PermissionDenied,
            // Without a number this crate made the error: the system does not report an existing call as unsupported.
            _ if source.kind() == io::ErrorKind::Unsupported && source.raw_os_error().is_none() => {
                ErrorKind::Unsupported
            }
            _ => ErrorKind::Io,
        };
        Error::new(program, FailedOperation::Child(operation), kind, Some(source))
    }

    /// Returns the error of a start before which another command has been started. Its kind is not `Unsupported`, after
    /// which a caller may try again with less: the other command would run twice.
    pub(crate) fn after_a_start(mut self) -> Error {
        if self.0.kind == ErrorKind::Unsupported {
            self.0.kind = ErrorKind::Io;
        }
        self
    }

    /// Returns the kind of failure, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the program as it was given, or the pid if a process was opened by its pid.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.0.program
    }

    /// Returns true if the program is missing or not executable. Returns false if another step of the start failed (the
    /// creation of a process, the change of user, the working directory), or if the program ran.
    #[must_use]
    pub fn is_execution(&self) -> bool {
        matches!(self.0.operation, FailedOperation::Execute)
    }

    /// Returns true if the start itself failed, at any step: no process of the command ran. False for a start that
    /// cannot be confirmed, because what holds its tree was killed meanwhile: the command may have run.
    #[must_use]
    pub fn is_start(&self) -> bool {
        !matches!(self.0.operation, FailedOperation::Child(_) | FailedOperation::Run)
    }

    /// Returns true if the start was ended because its file or its directory has not answered in time.
    pub(crate) fn is_unanswered_start(&self) -> bool {
        let is_late = |source: &io::Error| {
            source.kind() == io::ErrorKind::TimedOut && source.raw_os_error().is_none()
        };
        self.is_start() && self.0.source.as_ref().is_some_and(is_late)
    }

    /// Returns the error number of the `pre_exec` closure that failed, if one failed.
    pub(crate) fn of_closure(&self) -> Option<i32> {
        match self.0.operation {
            FailedOperation::PreExec => self.raw_os_error(),
            _ => None,
        }
    }

    /// Returns the system's error number, if the system reported one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Returns the kind of the `io::Error` that this error is converted to.
    fn io_kind(&self) -> io::ErrorKind {
        match (&self.0.source, &self.0.kind) {
            (Some(source), _) => source.kind(),
            (None, ErrorKind::InvalidInput) => io::ErrorKind::InvalidInput,
            (None, ErrorKind::InvalidUtf8 { .. }) => io::ErrorKind::InvalidData,
            (None, ErrorKind::Unsupported) => io::ErrorKind::Unsupported,
            (None, _) => io::ErrorKind::Other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        let program = Quoted(&facts.program);
        match &facts.operation {
            FailedOperation::Start | FailedOperation::Execute => {
                write!(f, "cannot start {program}: ")?
            }
            FailedOperation::StartPipeline => f.write_str("cannot start the pipeline: ")?,
            FailedOperation::CreateSlot => f.write_str("cannot create a tree slot: ")?,
            FailedOperation::PreExec => {
                write!(f, "cannot start {program}: pre_exec closure failed: ")?
            }
            FailedOperation::Prepare(words) => write!(f, "cannot start {program}: {words}: ")?,
            FailedOperation::Child(operation) => write!(f, "cannot {operation} {program}: ")?,
            FailedOperation::Run => write!(f, "{program} failed: ")?,
        }
        facts.kind.show(facts.source.as_ref(), f)
    }
}

pipewright_os::impl_error!(Error);

/// The kinds of failure, each with its facts.
///
/// A kind can be compared with an [`io::ErrorKind`], so that code written for std's `Command`
/// keeps its `error.kind() == io::ErrorKind::NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program does not exist.
    NotFound {
        /// The directories that were searched, in order. Empty if the program was given as a path.
        searched: Vec<PathBuf>,
    },
    /// The working directory of the child is missing, or is not a directory.
    CurrentDirMissing {
        /// The directory.
        dir: PathBuf,
    },
    /// The program, its directory or an option needs a permission that this process lacks.
    PermissionDenied,
    /// The file exists and cannot be executed.
    NotExecutable {
        /// The reason.
        reason: NotExecutable,
    },
    /// The program's file is open for writing (`ETXTBSY`), and stayed open during all retries.
    Busy,
    /// The [`TreeSlot`](crate::TreeSlot) is in use by another command.
    SlotInUse,
    /// `cmd.exe`, which runs batch files, could misinterpret an argument or the file's name.
    BatArgs,
    /// An option is invalid, for example a NUL byte, a handle that is listed twice, or a reader that an earlier run has
    /// used.
    InvalidInput,
    /// A limit of this process, its user or the machine was reached.
    Limit {
        /// The limit, as in "too many open files".
        what: &'static str,
    },
    /// A limit of [`Command::limits`](crate::Command::limits) cannot be held here.
    LimitUnavailable {
        /// The limit, the reason and a remedy.
        limit: LimitUnavailable,
    },
    /// This platform does not support an option.
    Unsupported,
    /// The child ran and did not succeed. Only `run`, `read` and [`check`](crate::Captured::check) return this.
    #[non_exhaustive]
    Failed {
        /// The child's exit status.
        status: ExitStatus,
        /// The reason why the run ended.
        outcome: Outcome,
        /// The limit that the run exceeded, if that is why it was stopped.
        exceeded: Option<Exceeded>,
        /// The end of stdout, if stdout was captured.
        stdout_tail: String,
        /// The end of stderr, if it passed through this process. With
        /// [`merge_stderr`](crate::Command::merge_stderr), the end of the merged output.
        stderr_tail: String,
    },
    /// A stream is not valid UTF-8, and strict text was requested.
    InvalidUtf8 {
        /// The stream.
        source: Source,
        /// The offset of the first invalid byte.
        offset: usize,
    },
    /// The output of a `Session` did not have what was expected.
    NotSeen {
        /// The patterns, as in `"password:" or /\$ $/`.
        wanted: String,
        /// The reason for the end of the wait.
        reason: NotSeen,
        /// The last 2 KiB of the output as a person has seen it: without colours, and lines as they were overwritten.
        /// With the feature `screen`, the screen of a program that uses the alternate one.
        tail: String,
    },
    /// A [`Runner`](crate::Runner) cancelled the command before it started.
    Cancelled,
    /// No process has this pid.
    NoSuchProcess,
    /// Other code in this program reaped the child, and the kernel did not keep its exit status.
    StatusLost,
    /// The system reported some other error.
    Io,
}

/// The reason why a `Session` did not see what it expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotSeen {
    /// It did not come within this time.
    TimedOut(Duration),
    /// The output ended.
    Ended,
}

/// The reason why a file cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotExecutable {
    /// The file is neither a program for this machine nor a script that names its interpreter.
    BadFormat,
    /// The file is a directory.
    IsDirectory,
    /// The interpreter does not exist: the one in a script's first line, or a program's dynamic loader.
    MissingInterpreter(PathBuf),
}

impl ErrorKind {
    /// Returns a stable, machine-readable name such as `not_found` or `permission_denied`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ErrorKind::NotFound { .. } => "not_found",
            ErrorKind::CurrentDirMissing { .. } => "current_dir_missing",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::NotExecutable { .. } => "not_executable",
            ErrorKind::Busy => "busy",
            ErrorKind::SlotInUse => "slot_in_use",
            ErrorKind::BatArgs => "bat_args",
            ErrorKind::InvalidInput => "invalid_input",
            ErrorKind::Limit { .. } => "limit",
            ErrorKind::LimitUnavailable { .. } => "limit_unavailable",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Failed { .. } => "failed",
            ErrorKind::InvalidUtf8 { .. } => "invalid_utf8",
            ErrorKind::NotSeen { .. } => "not_seen",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::NoSuchProcess => "no_such_process",
            ErrorKind::StatusLost => "status_lost",
            ErrorKind::Io => "io",
        }
    }

    /// Returns the limit that a system error reports, if it reports one.
    fn limit_of(error: &io::Error) -> Option<ErrorKind> {
        match os_error_kind(error)? {
            OsErrorKind::Limit(what) => Some(ErrorKind::Limit { what }),
            _ => None,
        }
    }

    fn show(&self, source: Option<&io::Error>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::NotFound { searched } => match searched.len() {
                0 => f.write_str("no such file"),
                1 => f.write_str("not found in PATH (searched 1 directory)"),
                count => write!(f, "not found in PATH (searched {count} directories)"),
            },
            ErrorKind::CurrentDirMissing { dir } => {
                let dir = Quoted(dir.as_os_str());
                let is_there = source.is_some_and(|e| e.kind() == io::ErrorKind::NotADirectory);
                let is_not = if is_there { "is not a directory" } else { "does not exist" };
                write!(f, "working directory {dir} {is_not}")
            }
            ErrorKind::PermissionDenied => write_numbered("permission denied", source, f),
            ErrorKind::NotExecutable { reason } => write!(f, "{reason}"),
            ErrorKind::Busy => f.write_str("text file busy: the file is open for writing"),
            ErrorKind::Cancelled => f.write_str("cancelled before it started"),
            ErrorKind::Limit { what } => write_numbered(what, source, f),
            ErrorKind::LimitUnavailable { limit } => write!(f, "{limit}"),
            ErrorKind::Failed { status, outcome, exceeded, stdout_tail, stderr_tail } => {
                let is_stopped = !matches!(outcome, Outcome::Exited | Outcome::Signaled);
                match (outcome, exceeded) {
                    (Outcome::OutOfMemory(oom), _) => write!(f, "{oom}")?,
                    (_, Some(exceeded)) => write!(f, "{exceeded}")?,
                    (_, None) if is_stopped => write!(f, "{outcome}")?,
                    (_, None) => write!(f, "{status}")?,
                }
                // The last line of a stopped child's stdout shows how far it got.
                let progress = if is_stopped { last_line(stdout_tail) } else { "" };
                let complaint = Some(last_line(stderr_tail)).filter(|line| !line.is_empty());
                match complaint.unwrap_or(progress) {
                    "" => Ok(()),
                    line => write!(f, ": {}", OneLine(line)),
                }
            }
            ErrorKind::InvalidUtf8 { source, offset } => {
                write!(f, "{source} is not UTF-8 at byte {offset}")
            }
            ErrorKind::NotSeen { wanted, reason, tail } => {
                let wanted = OneLine(wanted);
                match reason {
                    NotSeen::TimedOut(limit) => write!(f, "did not see {wanted} in {limit:?}")?,
                    NotSeen::Ended => write!(f, "did not see {wanted} before the output ended")?,
                }
                match last_line(tail) {
                    "" => Ok(()),
                    line => write!(f, ": {}", OneLine(line)),
                }
            }
            ErrorKind::NoSuchProcess => write_numbered("no such process", source, f),
            ErrorKind::StatusLost => {
                f.write_str("other code in this program reaped it, and its exit status is lost")
            }
            ErrorKind::BatArgs
            | ErrorKind::SlotInUse
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::Io => match source {
                Some(source) => write!(f, "{}", OneLine(&source.to_string())),
                None => f.write_str("invalid input, or not supported"),
            },
        }
    }
}

impl PartialEq<io::ErrorKind> for ErrorKind {
    fn eq(&self, other: &io::ErrorKind) -> bool {
        use io::ErrorKind as Io;
        match self {
            ErrorKind::NotFound { .. } | ErrorKind::NoSuchProcess => *other == Io::NotFound,
            ErrorKind::CurrentDirMissing { .. } => {
                matches!(other, Io::NotFound | Io::NotADirectory)
            }
            ErrorKind::PermissionDenied => *other == Io::PermissionDenied,
            ErrorKind::NotExecutable { reason } => match reason {
                NotExecutable::MissingInterpreter(_) => *other == Io::NotFound,
                NotExecutable::IsDirectory => *other == Io::PermissionDenied,
                NotExecutable::BadFormat => false,
            },
            ErrorKind::Busy => *other == Io::ExecutableFileBusy,
            ErrorKind::BatArgs | ErrorKind::InvalidInput => *other == Io::InvalidInput,
            ErrorKind::Unsupported | ErrorKind::LimitUnavailable { .. } => {
                *other == Io::Unsupported
            }
            ErrorKind::InvalidUtf8 { .. } => *other == Io::InvalidData,
            ErrorKind::SlotInUse
            | ErrorKind::Limit { .. }
            | ErrorKind::Failed { .. }
            | ErrorKind::NotSeen { .. }
            | ErrorKind::StatusLost
            | ErrorKind::Cancelled
            | ErrorKind::Io => false,
        }
    }
}

impl PartialEq<io::ErrorKind> for &ErrorKind {
    fn eq(&self, other: &io::ErrorKind) -> bool {
        **self == *other
    }
}

impl fmt::Display for NotExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotExecutable::BadFormat => f.write_str(
                "exec format error: not a program for this machine; the first line of a script has to name \
                 its interpreter, \
                 as in #!/bin/sh",
            ),
            NotExecutable::IsDirectory => f.write_str("is a directory"),
            NotExecutable::MissingInterpreter(path) => {
                write!(f, "its interpreter {} does not exist", Quoted(path.as_os_str()))
            }
        }
    }
}

/// Returns the last line that is not blank, cut to 200 characters: it is only a hint, and the error has the whole text.
fn last_line(text: &str) -> &str {
    const MAX_CHARS: usize = 200;
    // ASCII only: Unicode white space would make a minimal program 0.6 kB larger.
    let text = text.trim_ascii_end();
    let start = text.bytes().rposition(|byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = text.get(start..).unwrap_or_default().trim_ascii_start();
    line.char_indices().nth(MAX_CHARS).map_or(line, |(end, _)| &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_one_that_is_not_blank() {
        assert_eq!(last_line("one\n two \n\n  \r\n"), "two");
        assert_eq!(last_line(""), "");
        assert_eq!(last_line(&"\u{e9}".repeat(500)).chars().count(), 200);
    }

    #[test]
    fn kinds_compare_with_those_of_io() {
        let kind = ErrorKind::NotFound { searched: Vec::new() };
        assert!(kind == io::ErrorKind::NotFound);
        assert!(kind != io::ErrorKind::PermissionDenied);
    }
}
