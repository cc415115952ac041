//! Exit codes, the same as those of coreutils' `timeout`, alone because every command uses them. `run --help` prints
//! the table.

use std::error::Error as _;
use std::io;

use pipewright::{Error, ErrorKind, ExitStatus};

pub(crate) const SUCCESS: i32 = 0;
/// The lock was not free in time: `EX_TEMPFAIL` of sysexits.h.
pub(crate) const NOT_LOCKED: i32 = 75;
/// The command was stopped by a timeout or an output limit.
pub(crate) const STOPPED: i32 = 124;
/// pipewright itself failed: wrong usage, a missing file, a full disk.
pub(crate) const OWN_FAILURE: i32 = 125;
/// The command was found, but is not executable.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: i32 = 127;
/// Base of the codes for a command that a signal killed: the number of the signal is added.
pub(crate) const SIGNAL_BASE: i32 = 128;

/// Returns the code for a command that ended by itself.
pub(crate) fn of_status(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => of_signal(signal),
        (None, None) => OWN_FAILURE,
    }
}

/// Returns the code for a command that a signal killed.
pub(crate) fn of_signal(number: i32) -> i32 {
    SIGNAL_BASE + (number & 0x7f)
}

/// Returns the code for a command that could not be started.
pub(crate) fn of_error(error: &Error) -> i32 {
    match error.kind() {
        ErrorKind::NotFound { .. } => NOT_FOUND,
        ErrorKind::Limit { .. } => OWN_FAILURE,
        // A stream that is a named pipe, whose other side nobody opens.
        _ if has_cause(error, io::ErrorKind::TimedOut) => STOPPED,
        // Only errors of the program itself: its directory, its files and its process are up to pipewright.
        _ if error.is_execution() => NOT_EXECUTABLE,
        _ => OWN_FAILURE,
    }
}

/// Returns true if the system's error behind it is of that kind.
pub(crate) fn has_cause(error: &Error, kind: io::ErrorKind) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == kind)
}
