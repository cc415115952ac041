//! Starts a worker with its end of a handle channel.

use pipewright::{Child, Command};
use pipewright_os::channel::handle_channel::{self, ChannelEnd, Inheritance};

use crate::error::{Error, ErrorKind};
use crate::output::WorkerOutput;

/// The environment variable with the number of the worker's end.
pub(crate) const VARIABLE: &str = "PIPEWRIGHT_IPC";

/// The most bytes kept of a worker's stderr from before the handshake.
const MAX_STDERR_TAIL_BYTES: usize = 16 << 10;

/// Returns an error if this process is a worker that has not claimed its handle channel. A program that starts itself
/// as its worker, and forgets to check, would start itself endlessly.
pub(crate) fn check_may_start() -> Result<(), Error> {
    match handle_channel::inheritance(VARIABLE) {
        Inheritance::Unclaimed => Err(Error::new(ErrorKind::Unclaimed)),
        Inheritance::Nothing | Inheritance::Claimed => Ok(()),
    }
}

/// Starts the command as a worker. It is killed when the child is dropped and when this process ends.
pub(crate) fn start(command: &mut Command) -> Result<(ChannelEnd, Child), Error> {
    check_may_start()?;
    let (mut ours, theirs) =
        handle_channel::pair().map_err(Error::cannot("create a handle channel"))?;
    // Passed by value: a copy kept here would hide the exit of the worker.
    let variables = handle_channel::variables(VARIABLE, &theirs);
    let child = command.spawn_worker(theirs, variables)?;
    ours.set_worker(child.child_handle())
        .map_err(Error::cannot("bind the handle channel to its worker"))?;
    Ok((ours, child))
}

/// Returns the error of a channel's worker that did not complete the handshake, with the end of its stderr if that is piped.
pub(crate) fn without_handshake(error: Error, child: &mut Child) -> Error {
    let (status, timeout) = match error.kind() {
        ErrorKind::Died { status } => (*status, None),
        ErrorKind::TimedOut { .. } => (None, Some(&error)),
        _ => return error,
    };
    let mut stderr = WorkerOutput::new(child.stderr.take(), MAX_STDERR_TAIL_BYTES);
    stderr.read_available();
    Error::no_handshake((child.id(), status), stderr.tail(), timeout)
}
