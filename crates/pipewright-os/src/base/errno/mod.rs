//! Meanings of system errors, whose numbers differ between systems.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::os_error;

use std::io;

/// The meaning of a system error, if the crates above treat it specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OsErrorKind {
    /// A permission is missing.
    Denied,
    /// No process has that id.
    NoSuchProcess,
    /// Other code of this program has already reaped the child.
    StatusLost,
    /// The handle is not open.
    BadHandle,
    /// The file is not a program for this machine.
    BadFormat,
    /// A program's file is still open for writing.
    Busy,
    /// The operation was cancelled before it began.
    Cancelled,
    /// A device failed.
    Device,
    /// A limit was reached; the text names it.
    Limit(&'static str),
}

/// Returns the meaning of the error; `None` for an error that is not listed above.
///
/// # Platform
/// Unix: the `errno`. Windows: the code of `GetLastError`. An error without a number, made by the
/// platform layer itself: its [`ErrorKind`](io::ErrorKind).
#[must_use]
pub fn os_error_kind(error: &io::Error) -> Option<OsErrorKind> {
    match error.raw_os_error() {
        Some(number) => imp::os_error_kind(number),
        None => match error.kind() {
            io::ErrorKind::PermissionDenied => Some(OsErrorKind::Denied),
            io::ErrorKind::NotFound => Some(OsErrorKind::NoSuchProcess),
            io::ErrorKind::ArgumentListTooLong => Some(OsErrorKind::Limit(TOO_LONG)),
            _ => None,
        },
    }
}

/// Returns the system's error for an operation that was cancelled before it began.
///
/// # Platform
/// Unix: `ECANCELED`. Windows: `ERROR_OPERATION_ABORTED`.
#[must_use]
pub fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(imp::CANCELLED)
}

const TOO_LONG: &str = "arguments and environment are too long";
