//! The kinds of failure and their words.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pipewright_os::base::errno::{OsErrorKind, os_error_kind};
use pipewright_os::base::error::{OneLine, Quoted, write_numbered};
use pipewright_os::process::status::ExitStatus;

use crate::outcome::{Exceeded, Outcome, Source};

/// The kinds of failure, each with the facts that belong to it.
///
/// A kind can be compared with an [`io::ErrorKind`], so that code written for std's `Command`
/// keeps its `error.kind() == io::ErrorKind::NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such program.
    NotFound {
        /// The directories that were searched, in order; empty where the program was a path.
        searched: Vec<PathBuf>,
    },
    /// The working directory of the child is missing, or is not a directory.
    CurrentDirMissing {
        /// The directory.
        dir: PathBuf,
    },
    /// The program, its directory or an option needs a right that we do not have.
    PermissionDenied,
    /// There is such a file, and it cannot be executed.
    NotExecutable {
        /// Why not.
        reason: NotExecutable,
    },
    /// Something still writes to the program's file (`ETXTBSY`), and went on doing so.
    Busy,
    /// An argument that `cmd.exe` could take for something else.
    BatArgs,
    /// Something that no child can be given: a NUL byte, a handle twice, a stream that is used
    /// already.
    InvalidInput,
    /// A limit of this process, its user or the machine was reached.
    Limit {
        /// What there is not enough of.
        what: &'static str,
    },
    /// An option that this platform does not have.
    Unsupported,
    /// The child ran, and it was no success. Only from `run`, `read` and [`check`](crate::Captured::check).
    #[non_exhaustive]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// Why it ended.
        outcome: Outcome,
        /// The limit that it exceeded, where that is why.
        exceeded: Option<Exceeded>,
        /// The end of what it wrote to stdout, where that was captured.
        stdout_tail: String,
        /// The end of what it wrote to stderr, where that passed through us.
        stderr_tail: String,
    },
    /// A stream is not UTF-8, and strict text was asked for.
    InvalidUtf8 {
        /// The stream.
        source: Source,
        /// Where the first byte stands that is not.
        offset: usize,
    },
    /// A [`Runner`](crate::Runner) was told to cancel it before its start.
    Cancelled,
    /// No process has that number.
    NoSuchProcess,
    /// Other code of this program reaped the child, and the kernel did not keep its status.
    StatusLost,
    /// The system reported something else.
    Io,
}

/// Why a file cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotExecutable {
    /// It is neither a program for this machine nor a script that names its interpreter.
    BadFormat,
    /// It is a directory.
    IsDirectory,
    /// It names an interpreter (a script's first line, a program's dynamic loader) that is not
    /// there.
    MissingInterpreter(PathBuf),
}

impl ErrorKind {
    /// A name for machines, which stays as it is: `not_found`, `permission_denied`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ErrorKind::NotFound { .. } => "not_found",
            ErrorKind::CurrentDirMissing { .. } => "current_dir_missing",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::NotExecutable { .. } => "not_executable",
            ErrorKind::Busy => "busy",
            ErrorKind::BatArgs => "bat_args",
            ErrorKind::InvalidInput => "invalid_input",
            ErrorKind::Limit { .. } => "limit",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Failed { .. } => "failed",
            ErrorKind::InvalidUtf8 { .. } => "invalid_utf8",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::NoSuchProcess => "no_such_process",
            ErrorKind::StatusLost => "status_lost",
            ErrorKind::Io => "io",
        }
    }

    /// The limit that an error of the system speaks of, if it does.
    pub(super) fn limit_of(error: &io::Error) -> Option<ErrorKind> {
        match os_error_kind(error)? {
            OsErrorKind::Limit(what) => Some(ErrorKind::Limit { what }),
            _ => None,
        }
    }

    pub(super) fn show(
        &self,
        source: Option<&io::Error>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
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
            ErrorKind::Busy => f.write_str("text file busy: something still writes to it"),
            ErrorKind::Cancelled => f.write_str("cancelled before its start"),
            ErrorKind::BatArgs => f.write_str("an argument is not safe for cmd.exe"),
            ErrorKind::Limit { what } => write_numbered(what, source, f),
            ErrorKind::Failed { status, outcome, exceeded, stdout_tail, stderr_tail } => {
                let is_stopped = !matches!(outcome, Outcome::Exited | Outcome::Signaled);
                match exceeded {
                    Some(exceeded) => write!(f, "{exceeded}")?,
                    None if is_stopped => write!(f, "{outcome}")?,
                    None => write!(f, "{status}")?,
                }
                // How far it had come says what it was doing then.
                let so_far = if is_stopped { last_line(stdout_tail) } else { "" };
                match Some(last_line(stderr_tail)).filter(|line| !line.is_empty()).unwrap_or(so_far)
                {
                    "" => Ok(()),
                    line => write!(f, ": {}", OneLine(line)),
                }
            }
            ErrorKind::InvalidUtf8 { source, offset } => {
                write!(f, "{source} is not UTF-8 at byte {offset}")
            }
            ErrorKind::NoSuchProcess => write_numbered("no such process", source, f),
            ErrorKind::StatusLost => {
                f.write_str("other code of this program has waited for it, and its status is lost")
            }
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Io => match source {
                Some(source) => write!(f, "{}", OneLine(&source.to_string())),
                None => f.write_str("not possible here"),
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
            ErrorKind::Unsupported => *other == Io::Unsupported,
            ErrorKind::InvalidUtf8 { .. } => *other == Io::InvalidData,
            ErrorKind::Limit { .. }
            | ErrorKind::Failed { .. }
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
            NotExecutable::BadFormat => f.write_str("not in a format that can be executed"),
            NotExecutable::IsDirectory => f.write_str("is a directory"),
            NotExecutable::MissingInterpreter(path) => {
                write!(f, "its interpreter {} does not exist", Quoted(path.as_os_str()))
            }
        }
    }
}

/// Returns the last line that is not blank. Its length is not limited.
fn last_line(text: &str) -> &str {
    let text = text.trim_end();
    let start = text.bytes().rposition(|byte| byte == b'\n').map_or(0, |at| at + 1);
    text.get(start..).unwrap_or_default().trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_one_that_is_not_blank() {
        assert_eq!(last_line("one\n two \n\n  \r\n"), "two");
        assert_eq!(last_line(""), "");
    }

    #[test]
    fn kinds_compare_with_those_of_io() {
        let kind = ErrorKind::NotFound { searched: Vec::new() };
        assert!(kind == io::ErrorKind::NotFound);
        assert!(kind != io::ErrorKind::PermissionDenied);
    }
}
