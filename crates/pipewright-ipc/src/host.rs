//! Starts a worker, with its end of a link.

use pipewright::{Child, Command};
use pipewright_os::channel::handle_channel::{self, End, Inheritance};

use crate::error::{Error, ErrorKind};
use crate::output::Output;

/// The variable that tells a worker the number of its end.
pub(crate) const VARIABLE: &str = "PIPEWRIGHT_IPC";

/// How much is kept of what a worker wrote before the handshake.
const MOST_LAST_WORDS_BYTES: usize = 16 << 10;

/// Checks that this process is no worker that has forgotten to claim its link: started by its own program, it would start
/// the same program once more, and so would that one.
pub(crate) fn may_start() -> Result<(), Error> {
    match handle_channel::inheritance(VARIABLE) {
        Inheritance::Unclaimed => Err(Error::new(ErrorKind::Unclaimed)),
        Inheritance::Nothing | Inheritance::Claimed => Ok(()),
    }
}

/// Starts the command as a worker. It ends when the child is dropped, and with this process.
pub(crate) fn start(command: &mut Command) -> Result<(End, Child), Error> {
    may_start()?;
    let (mut ours, theirs) = handle_channel::pair().map_err(Error::cannot("make a link"))?;
    // For this start and no longer: an end that we kept would hide the end of the worker.
    let variables = handle_channel::variables(VARIABLE, &theirs);
    let child = command.spawn_worker(theirs, variables)?;
    ours.set_worker(child.child_handle()).map_err(Error::cannot("tell the link its worker"))?;
    Ok((ours, child))
}

/// Returns the error for a worker of a channel that did not complete the handshake, with its last words if its stderr
/// is ours to read.
pub(crate) fn without_handshake(error: Error, child: &mut Child) -> Error {
    let (status, timeout) = match error.kind() {
        ErrorKind::Died { status } => (*status, None),
        ErrorKind::TimedOut { .. } => (None, Some(&error)),
        _ => return error,
    };
    let mut stderr = Output::new(child.stderr.take(), MOST_LAST_WORDS_BYTES);
    stderr.take_in();
    Error::no_handshake((child.id(), status), stderr.last_words(), timeout)
}
