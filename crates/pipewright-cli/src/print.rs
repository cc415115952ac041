//! What the tool prints on stdout.

use std::io::{self, Write as _};

use pipewright::{CaughtSignals, Signal};
use serde::Serialize;

use crate::Failure;

/// Has a file that is longer than may be (`RLIMIT_FSIZE`) be an error, which would be the end of us without a word.
/// Before there is another thread.
pub(crate) fn let_large_files_fail() {
    // Ignored: a system that has no such signal needs nothing.
    let _ = "XFSZ".parse().map(|signal: Signal| CaughtSignals::new(&[signal]));
}

/// Prints that.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    wrote(stdout.write_all(bytes.as_ref()).and_then(|()| stdout.flush()))
}

/// What comes of printing.
pub(crate) fn wrote(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if !is_reader_gone(&error) => Err(Failure::cannot("write to stdout")(error)),
        _ => Ok(()),
    }
}

/// A reader that has gone, as `head` does, has read what it wanted: that is no failure.
pub(crate) fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints an object on a line.
pub(crate) fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    print(serde_json::to_string(object).map_err(Failure::cannot("write JSON"))? + "\n")
}
