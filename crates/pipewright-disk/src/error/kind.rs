//! The kinds of failure and their words.

use std::fmt;
use std::io;

use pipewright_os::base::errno::{Cause, cause};
use pipewright_os::base::error::{OneLine, write_numbered};
use pipewright_os::disk::unavailable::UnavailableReason;

/// The kinds of failure, each with the facts that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file.
    NotFound,
    /// There is such a file, and there must not be.
    AlreadyExists,
    /// A right is missing.
    PermissionDenied,
    /// It is a directory.
    IsDirectory,
    /// It is a pipe, a socket or a terminal: nothing in it has a place.
    NotSeekable,
    /// It has no bytes that could be read.
    Empty,
    /// The filesystem can only be read.
    ReadOnly,
    /// The file was not opened for that.
    NotOpenedFor {
        /// `"reading"` or `"writing"`.
        what: &'static str,
    },
    /// The disk, or what the user may have of it, is full.
    NoSpace,
    /// The file would become longer than it may be (`RLIMIT_FSIZE`, the filesystem's own limit).
    TooLarge,
    /// A direct operation is not a multiple of what the disk asks for.
    Misaligned(Misaligned),
    /// The file ended before all of it had been read.
    EndOfFile {
        /// How many bytes were asked for.
        wanted: usize,
        /// How many there were.
        got: usize,
    },
    /// The disk took nothing, and said nothing.
    WriteZero,
    /// A sync of this file failed before: what was written since the last one that did not may be lost, and
    /// a later sync would not know.
    Poisoned,
    /// It was cancelled before it began.
    Cancelled,
    /// The disk failed.
    Device,
    /// The filesystem cannot do that.
    Unsupported,
    /// A backend that was asked for cannot be used.
    NoBackend {
        /// Why not.
        reason: UnavailableReason,
    },
    /// Something that makes no sense: a size beyond all disks, a depth of 0.
    InvalidInput,
    /// A limit of this process, its user or the machine was reached.
    Limit {
        /// What there is not enough of.
        what: &'static str,
    },
    /// The system reported something else.
    Io,
}

/// Which part of a direct operation is not a multiple of what, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misaligned {
    /// The part.
    pub part: Part,
    /// What it has to be a multiple of.
    pub needed: usize,
    /// What it is.
    pub given: u64,
    /// Whether the system told what is needed; else it is what suits every disk.
    pub reported: bool,
}

/// A part of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The place of the buffer in memory.
    Memory,
    /// The place in the file.
    Offset,
    /// The number of bytes.
    Length,
}

impl ErrorKind {
    /// A name for machines, which stays as it is: `not_found`, `no_space`.
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

    /// What an error of the system means.
    pub(super) fn of(error: &io::Error) -> ErrorKind {
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
            _ => match cause(error) {
                Some(Cause::Cancelled) => ErrorKind::Cancelled,
                Some(Cause::Device) => ErrorKind::Device,
                Some(Cause::Denied) => ErrorKind::PermissionDenied,
                // EAGAIN of a spawn is not that of a file.
                Some(Cause::Limit(what)) if error.kind() != io::ErrorKind::WouldBlock => {
                    ErrorKind::Limit { what }
                }
                _ => ErrorKind::Io,
            },
        }
    }

    /// The kind that std has for it, where the system said nothing.
    pub(super) fn io_kind(&self) -> io::ErrorKind {
        match self {
            ErrorKind::Misaligned(_) | ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::EndOfFile { .. } => io::ErrorKind::UnexpectedEof,
            ErrorKind::WriteZero => io::ErrorKind::WriteZero,
            ErrorKind::NotOpenedFor { .. } => io::ErrorKind::PermissionDenied,
            ErrorKind::NoBackend { .. } => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        }
    }

    pub(super) fn show(
        &self,
        source: Option<&io::Error>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let words = match self {
            ErrorKind::NotFound => "no such file or directory",
            ErrorKind::AlreadyExists => "it exists",
            ErrorKind::PermissionDenied => "permission denied",
            ErrorKind::IsDirectory => "is a directory",
            ErrorKind::NotSeekable => "is neither a file nor a disk",
            ErrorKind::Empty => "is empty",
            ErrorKind::ReadOnly => "the filesystem is read-only",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::TooLarge => "the file would become too large",
            ErrorKind::WriteZero => "nothing was taken",
            ErrorKind::Poisoned => "a sync of it has failed before",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Device => "the disk failed",
            ErrorKind::NotOpenedFor { what } => return write!(f, "it was not opened for {what}"),
            ErrorKind::Misaligned(misaligned) => return write!(f, "{misaligned}"),
            ErrorKind::EndOfFile { wanted, got } => {
                return write!(f, "the file ends after {got} of {wanted} bytes");
            }
            ErrorKind::NoBackend { reason } => return write!(f, "{reason}"),
            ErrorKind::Limit { what } => what,
            ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::Io => {
                return match source {
                    Some(source) => write!(f, "{}", OneLine(&source.to_string())),
                    None => f.write_str("not possible"),
                };
            }
        };
        write_numbered(words, source, f)
    }
}

impl fmt::Display for Misaligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Memory => "the buffer's address",
            Part::Offset => "the offset",
            Part::Length => "the length",
        };
        // An address says nothing but how far it is off.
        let given = if self.part == Part::Memory {
            format!("is {} bytes past one", self.given % self.needed as u64)
        } else {
            format!("is {}", self.given)
        };
        let told = if self.reported { "" } else { " (assumed: the system does not tell)" };
        write!(
            f,
            "{part} has to be a multiple of {} for direct I/O, and {given}{told}",
            self.needed
        )
    }
}
