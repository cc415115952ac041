//! The kinds of failure and their messages.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pipewright_os::base::error::{OneLine, OsErrorKind, Quoted, os_error_kind, write_numbered};
use pipewright_os::process::limits::LimitUnavailable;
use pipewright_os::process::status::ExitStatus;

use crate::outcome::{Exceeded, Outcome, Source};

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
        /// The last 2 KiB of the output as a person has seen it: without colours, and lines as they were overwritten. With the
        /// feature `screen`, the screen of a program that uses the alternate one.
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
                "exec format error: not a program for this machine; the first line of a script has to name its interpreter, \
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
