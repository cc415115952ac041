//! The exit codes, which are those of coreutils' `timeout`. `run --help` prints the table.

use pipewright::{Error, ErrorKind, ExitStatus};

/// All is well.
pub(crate) const SUCCESS: i32 = 0;
/// We stopped the command: its time was up, or it said too much.
pub(crate) const STOPPED: i32 = 124;
/// pipewright itself failed: misuse, a missing file, no room.
pub(crate) const OWN_FAILURE: i32 = 125;
/// The command was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: i32 = 127;
/// A signal of that number ended the command: this is added to it.
pub(crate) const SIGNAL_BASE: i32 = 128;

/// The code for a command that ended by itself.
pub(crate) fn of_status(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => of_signal(signal),
        (None, None) => OWN_FAILURE,
    }
}

/// The code for the end by a signal.
pub(crate) fn of_signal(number: i32) -> i32 {
    SIGNAL_BASE + (number & 0x7f)
}

/// The code for a command that could not be started.
pub(crate) fn of_error(error: &Error) -> i32 {
    match error.kind() {
        ErrorKind::NotFound { .. } => NOT_FOUND,
        ErrorKind::Limit { .. } => OWN_FAILURE,
        // Not of its directory, its files or its process, which are for us to have.
        _ if error.is_execution() => NOT_EXECUTABLE,
        _ => OWN_FAILURE,
    }
}
