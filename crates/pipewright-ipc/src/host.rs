//! Starts a worker, with its end of a link.

use pipewright::{Child, Command};
use pipewright_os::link::{self, End};

use crate::error::Error;

/// The variable that tells a worker the number of its end.
pub(crate) const VARIABLE: &str = "PIPEWRIGHT_IPC";

/// Starts the command as a worker. It ends when the child is dropped, and with this process.
pub(crate) fn start(command: &mut Command) -> Result<(End, Child), Error> {
    let (mut ours, theirs) = link::pair().map_err(Error::cannot("make a link"))?;
    // For this start and no longer: an end that we kept would hide the end of the worker.
    let child = command.spawn_serving(theirs, VARIABLE)?;
    ours.set_worker(child.as_exit()).map_err(Error::cannot("tell the link its worker"))?;
    Ok((ours, child))
}
