//! What an error of the system means: its numbers are not the same on any two systems.

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

/// What an error of the system means, where that is something we have words of our own for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A right is missing.
    Denied,
    /// No process has that number.
    NoSuchProcess,
    /// Other code of this program has waited for the child.
    StatusLost,
    /// Nothing is open behind a handle.
    BadHandle,
    /// A file is not a program for this machine.
    BadFormat,
    /// Something still writes to a program's file.
    Busy,
    /// An operation was cancelled before it began.
    Cancelled,
    /// A disk failed.
    Device,
    /// There is not enough of something, and this is what.
    Limit(&'static str),
}

/// What the error means; `None`: nothing of the above.
///
/// # Platform
/// Unix: the `errno`. Windows: the code of `GetLastError`. Where there is neither, because the
/// platform layer says it in words of its own: the kind.
#[must_use]
pub fn cause(error: &io::Error) -> Option<Cause> {
    match error.raw_os_error() {
        Some(number) => imp::cause(number),
        None => match error.kind() {
            io::ErrorKind::PermissionDenied => Some(Cause::Denied),
            io::ErrorKind::NotFound => Some(Cause::NoSuchProcess),
            io::ErrorKind::ArgumentListTooLong => Some(Cause::Limit(TOO_LONG)),
            _ => None,
        },
    }
}

/// The system's error of an operation that was cancelled before it began.
///
/// # Platform
/// Unix: `ECANCELED`. Windows: `ERROR_OPERATION_ABORTED`.
#[must_use]
pub fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(imp::CANCELLED)
}

const TOO_LONG: &str = "arguments and environment are too long";
