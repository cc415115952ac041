//! The exit codes, which are those of coreutils' `timeout`. `run --help` prints the table.

use pipewright::{ErrorKind, ExitStatus};

/// We stopped the command: its time was up, or it said too much.
pub(crate) const STOPPED: u8 = 124;
/// pipewright itself failed: misuse, a missing file, no room.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The command was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// A signal of that number ended the command: this is added to it.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// The code for a command that ended by itself.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // Eight bits are all that a Unix parent is told.
        (Some(code), _) => (code & 0xff) as u8,
        (None, Some(signal)) => of_signal(signal),
        (None, None) => OWN_FAILURE,
    }
}

/// The code for the end by a signal.
pub(crate) fn of_signal(number: i32) -> u8 {
    SIGNAL_BASE.wrapping_add((number & 0x7f) as u8)
}

/// The code for a command that could not be started.
pub(crate) fn of_error(kind: &ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotFound { .. } => NOT_FOUND,
        ErrorKind::NotExecutable { .. } | ErrorKind::PermissionDenied | ErrorKind::Busy => {
            NOT_EXECUTABLE
        }
        _ => OWN_FAILURE,
    }
}
