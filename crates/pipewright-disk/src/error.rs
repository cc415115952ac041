//! The error type: one line, with its facts; and the kinds of failure and their messages.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use pipewright_os::base::error::{OneLine, OsErrorKind, Quoted, os_error_kind, write_numbered};
use pipewright_os::disk::unavailable::UnavailableReason;

/// An error of an operation on a file, or of creating an engine.
///
/// Prints as one line. The system's error, if there was one, is the [`source`](std::error::Error::source). It
/// survives the conversion to [`io::Error`], which keeps its kind.
///
/// ```
/// use pipewright_disk::{DiskFile, ErrorKind};
/// let error = DiskFile::options().read(true).open("no/such/file").unwrap_err();
/// assert_eq!(error.kind(), &ErrorKind::NotFound);
/// assert!(error.to_string().starts_with(r#"cannot open "no/such/file": "#));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    operation: &'static str,
    path: Option<PathBuf>,
    kind: ErrorKind,
    bytes: usize,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(operation: &'static str, path: Option<&Path>, kind: ErrorKind) -> Error {
        let path = path.map(Path::to_owned);
        Error(Box::new(ErrorFacts { operation, path, kind, bytes: 0, source: None }))
    }

    /// Wraps an error reported by the system.
    pub(crate) fn system(operation: &'static str, path: Option<&Path>, source: io::Error) -> Error {
        let mut error = Error::new(operation, path, ErrorKind::of(&source));
        error.0.source = Some(source);
        error
    }

    /// Adds the number of bytes transferred before the failure.
    pub(crate) fn after(mut self, bytes: usize) -> Error {
        self.0.bytes = bytes;
        self
    }

    /// Changes the kind.
    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// Copies the error for another file.
    pub(crate) fn again(&self, path: &Path) -> Error {
        let mut error = Error::new(self.0.operation, Some(path), self.0.kind.clone());
        error.0.source = self.raw_os_error().map(io::Error::from_raw_os_error);
        error
    }

    /// Returns the kind of failure, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the path of the file, if a file was involved.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the number of bytes that the operation transferred before it failed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the system's error number, if the system reported one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Returns the kind of the `io::Error` that this error is converted to.
    fn io_kind(&self) -> io::ErrorKind {
        self.0.source.as_ref().map_or(self.0.kind.io_kind(), io::Error::kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(f, "cannot {}", facts.operation)?;
        if let Some(path) = &facts.path {
            write!(f, " {}", Quoted(path.as_os_str()))?;
        }
        if facts.bytes > 0 {
            write!(f, " after {} bytes", facts.bytes)?;
        }
        f.write_str(": ")?;
        facts.kind.show(facts.source.as_ref(), f)
    }
}

pipewright_os::impl_error!(Error);

/// The kinds of failure, each with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file does not exist.
    NotFound,
    /// The file exists already.
    AlreadyExists,
    /// A permission or privilege is missing.
    PermissionDenied,
    /// The path is a directory.
    IsDirectory,
    /// The file is a pipe, a socket or a terminal, which has no offsets.
    NotSeekable,
    /// The file is empty, so a diagnosis has nothing to read.
    Empty,
    /// The filesystem is mounted read-only.
    ReadOnly,
    /// The file was not opened for this kind of access.
    NotOpenedFor {
        /// `"reading"` or `"writing"`.
        what: &'static str,
    },
    /// The disk or the user's quota is full.
    NoSpace,
    /// The file would exceed the maximum size (`RLIMIT_FSIZE`, or the filesystem's own limit).
    TooLarge,
    /// A direct operation is not aligned as the disk requires.
    Misaligned(Misaligned),
    /// The file ended before the buffer was full.
    EndOfFile {
        /// The number of bytes requested.
        wanted: usize,
        /// The number of bytes read.
        got: usize,
    },
    /// A write transferred 0 bytes without an error.
    WriteZero,
    /// An earlier sync of this file failed. Data written since the last successful sync may be lost, and a
    /// later sync would not report it.
    Poisoned,
    /// The operation was cancelled before it started.
    Cancelled,
    /// The disk reported an I/O error.
    Device,
    /// The filesystem does not support the operation.
    Unsupported,
    /// The requested backend is unavailable.
    NoBackend {
        /// The reason.
        reason: UnavailableReason,
    },
    /// An argument is invalid: an offset beyond the maximum, a depth of 0 or more than 2^20, or a diagnosis with 0
    /// requests or 0 bytes per request.
    InvalidInput,
    /// A limit of this process, its user or the machine was reached.
    Limit {
        /// A description of the limit.
        what: &'static str,
    },
    /// The system reported some other error.
    Io,
}

/// The part of a direct operation that is misaligned. All numbers are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misaligned {
    /// The misaligned part.
    pub part: Part,
    /// The required alignment.
    pub needed: usize,
    /// The actual value.
    pub given: u64,
    /// True if the system reported the alignment. Otherwise it is the value that suits every disk.
    pub reported: bool,
}

/// A part of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The address of the buffer.
    Memory,
    /// The offset in the file.
    Offset,
    /// The number of bytes.
    Length,
}

impl ErrorKind {
    /// Returns a stable, machine-readable name such as `not_found` or `no_space`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::IsDirectory => "is_directory",
            ErrorKind::NotSeekable => "not_seekable",
            ErrorKind::Empty => "empty",
            ErrorKind::ReadOnly => "read_only",
            ErrorKind::NotOpenedFor { .. } => "not_opened_for",
            ErrorKind::NoSpace => "no_space",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::Misaligned(_) => "misaligned",
            ErrorKind::EndOfFile { .. } => "end_of_file",
            ErrorKind::WriteZero => "write_zero",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Device => "device",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::NoBackend { .. } => "no_backend",
            ErrorKind::InvalidInput => "invalid_input",
            ErrorKind::Limit { .. } => "limit",
            ErrorKind::Io => "io",
        }
    }

    /// Returns the kind of an error that the system reported.
    fn of(error: &io::Error) -> ErrorKind {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::IsADirectory => ErrorKind::IsDirectory,
            io::ErrorKind::NotSeekable => ErrorKind::NotSeekable,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::FileTooLarge => ErrorKind::TooLarge,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            io::ErrorKind::OutOfMemory => ErrorKind::Limit { what: "out of memory" },
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
            _ => match os_error_kind(error) {
                Some(OsErrorKind::Cancelled) => ErrorKind::Cancelled,
                Some(OsErrorKind::Device) => ErrorKind::Device,
                Some(OsErrorKind::Denied) => ErrorKind::PermissionDenied,
                // `EAGAIN` means a process limit for a spawn, but not for a file.
                Some(OsErrorKind::Limit(what)) if error.kind() != io::ErrorKind::WouldBlock => {
                    ErrorKind::Limit { what }
                }
                _ => ErrorKind::Io,
            },
        }
    }

    /// Returns the matching kind of std, for failures that the system did not report.
    fn io_kind(&self) -> io::ErrorKind {
        match self {
            ErrorKind::Misaligned(_) | ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::EndOfFile { .. } => io::ErrorKind::UnexpectedEof,
            ErrorKind::WriteZero => io::ErrorKind::WriteZero,
            ErrorKind::NotOpenedFor { .. } => io::ErrorKind::PermissionDenied,
            ErrorKind::NoBackend { .. } => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        }
    }

    fn show(&self, source: Option<&io::Error>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self {
            ErrorKind::NotFound => "no such file or directory",
            ErrorKind::AlreadyExists => "file exists",
            ErrorKind::PermissionDenied => "permission denied",
            ErrorKind::IsDirectory => "is a directory",
            ErrorKind::NotSeekable => "neither a file nor a disk",
            ErrorKind::Empty => "the file is empty",
            ErrorKind::ReadOnly => "the filesystem is read-only",
            ErrorKind::NoSpace => "no space left on device",
            ErrorKind::TooLarge => "file too large",
            ErrorKind::WriteZero => "the write transferred 0 bytes",
            ErrorKind::Poisoned => "an earlier sync of this file failed, and data may be lost",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Device => "input/output error",
            ErrorKind::NotOpenedFor { what } => {
                return write!(f, "the file was not opened for {what}");
            }
            ErrorKind::Misaligned(misaligned) => return write!(f, "{misaligned}"),
            ErrorKind::EndOfFile { wanted, got } => {
                return write!(f, "the file ends after {got} of {wanted} bytes");
            }
            ErrorKind::NoBackend { reason } => return write!(f, "{reason}"),
            ErrorKind::Limit { what } => what,
            ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::Io => {
                return match (source, self) {
                    (Some(source), _) => write!(f, "{}", OneLine(&source.to_string())),
                    (None, ErrorKind::InvalidInput) => f.write_str("a number is out of range"),
                    (None, _) => f.write_str("not supported"),
                };
            }
        };
        write_numbered(message, source, f)
    }
}

impl fmt::Display for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Memory => "the buffer's address",
            Part::Offset => "the offset",
            Part::Length => "the length",
        };
        // The address itself is useless to readers; its distance from an aligned one is not.
        let given = if self.part == Part::Memory {
            format!("an address that is {} bytes past one", self.given % self.needed as u64)
        } else {
            self.given.to_string()
        };
        let reported = if self.reported { "" } else { " (assumed: the system does not report it)" };
        write!(
            f,
            "{part} of a direct request must be a multiple of {}, got {given}{reported}",
            self.needed
        )
    }
}
