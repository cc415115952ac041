//! The handshake: both sides compare their identities and capabilities, and prove that they share memory.
//!
//! ```text
//! host                                              worker
//!   HELLO identity, capabilities              ->
//!                                             <-    HELLO the same              (or REJECT, which names the field)
//!   MEMORY an object that contains a nonce    ->                                (if both can)
//!                                             <-    MEMORY an object, the nonce found in the host's
//!   READY the nonce found, or a reason        ->                                (or REJECT)
//! ```
//!
//! Each step has a deadline, and fails if the worker ends. Shared memory that is unavailable, or not the same on both
//! sides, is not used, and both sides know the reason.

mod identity;
mod memory;
mod state;
mod stream;
#[cfg(feature = "tokio")]
mod task;

use std::io;

use pipewright::Child;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::ChannelEnd;

use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Peer, WAIT};
use crate::exit;
use crate::options::Options;
pub(crate) use state::Handshake;
#[cfg(feature = "tokio")]
pub(crate) use task::{host_async, worker_async};

/// Performs the handshake of the host.
pub(crate) fn host(
    end: ChannelEnd,
    child: Option<&Child>,
    options: &Options,
) -> Result<Connection, Error> {
    let connected = Handshake::host(end, options).and_then(|handshake| run(handshake, child));
    connected.map_err(|error| exit::explain(error, child, None))
}

/// Performs the handshake of the worker.
pub(crate) fn worker(end: ChannelEnd, options: &Options) -> Result<Connection, Error> {
    run(Handshake::worker(end, options), None)
}

fn run(handshake: Handshake, child: Option<&Child>) -> Result<Connection, Error> {
    let mut handshake = Box::new(handshake);
    let completed = complete(&mut handshake, child);
    connection_of(handshake, completed)
}

fn complete(handshake: &mut Handshake, child: Option<&Child>) -> Result<(), Error> {
    let mut exited = false;
    while !step(handshake, exited)? {
        let mut slots = slots(handshake, child);
        let done = wait::any(&mut slots, handshake.until());
        exited = has_exited(done, slots, child)?;
    }
    Ok(())
}

fn connection_of(
    handshake: Box<Handshake>,
    completed: Result<(), Error>,
) -> Result<Connection, Error> {
    match completed {
        Ok(()) => Ok(handshake.into_connection()),
        Err(error) => {
            handshake.discard();
            Err(error)
        }
    }
}

/// The slots of a wait: arrival, room, exit of the child.
type Slots<'a> = [Slot<'a>; 3];

/// Goes on without waiting. Returns true if the handshake is complete.
fn step(handshake: &mut Handshake, exited: bool) -> Result<bool, Error> {
    match handshake.step()? {
        // The worker has exited, and another process holds its end.
        false if exited => Err(Error::new(ErrorKind::Died { status: None })),
        is_complete => Ok(is_complete),
    }
}

fn slots<'a>(handshake: &'a Handshake, child: Option<&'a Child>) -> Slots<'a> {
    let room = if handshake.wants_room() { Slot::Room(handshake.end()) } else { Slot::Off };
    let exit = child.map_or(Slot::Off, |child| Slot::Event(child.child_handle()));
    [Slot::Event(handshake.end()), room, exit]
}

/// Evaluates a wait. Returns true if the worker has exited.
fn has_exited(
    done: io::Result<usize>,
    slots: Slots<'_>,
    child: Option<&Child>,
) -> Result<bool, Error> {
    match done.map_err(Error::cannot(WAIT))? {
        0 => Err(timed_out(child)),
        _ => Ok(matches!(slots, [_, _, Slot::EventDone])),
    }
}

pub(crate) fn timed_out(child: Option<&Child>) -> Error {
    Error::new(ErrorKind::TimedOut { waiting_for: "the handshake", peer: Peer::of(child) })
}
