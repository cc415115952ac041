//! How two sides come to trust each other: who they are, what they can do, and memory that is proved.
//!
//! ```text
//! host                                        worker
//!   HELLO who I am, what I can do       ->
//!                                       <-    HELLO the same          (or REJECT, which names the field)
//!   MEMORY an object, with a nonce in it ->                           (where both can)
//!                                       <-    MEMORY an object, what I found in yours
//!   READY what I found in yours, or why not ->                        (or REJECT)
//! ```
//!
//! Every step has a deadline, and ends with the worker. Shared memory that cannot be had, or is not
//! the same on both sides, is left out, and both know why.

mod greeting;
mod identity;
mod memory;
mod talk;
#[cfg(feature = "tokio")]
mod task;

use std::time::{Duration, Instant};

use pipewright::Child;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::End;

use crate::channel::{Line, status_of};
use crate::error::{Error, ErrorKind, Peer, WAIT};
use crate::options::Options;
pub(crate) use greeting::Greeting;
#[cfg(feature = "tokio")]
pub(crate) use task::{end_async, host_async, worker_async};

/// What a side can do, as words; unknown ones are passed over.
const SHARED_MEMORY: &str = "shm.v1";
const HANDLES: &str = "handles.v1";
const CALLS: &str = "calls.v1";

/// The end of the worker is waited for, for so long, after it has closed its end.
const END_TAKES: Duration = Duration::from_secs(1);

/// The handshake of the side that began.
pub(crate) fn host(end: End, child: Option<&Child>, options: &Options) -> Result<Line, Error> {
    let greeting = Greeting::host(end, options).map_err(|error| explain(error, child))?;
    see_through(greeting, child)
}

/// The handshake of the side that was started.
pub(crate) fn worker(end: End, options: &Options) -> Result<Line, Error> {
    see_through(Greeting::worker(end, options), None)
}

/// Waits until the handshake is over, or the worker is.
fn see_through(mut greeting: Greeting, child: Option<&Child>) -> Result<Line, Error> {
    let mut exited = false;
    loop {
        match greeting.go_on() {
            Ok(true) => return Ok(greeting.into_line()),
            Ok(false) => {}
            Err(error) => return Err(explain(error, child)),
        }
        if exited {
            // It has ended, and somebody else holds its end.
            return Err(explain(Error::new(ErrorKind::Died { status: None }), child));
        }
        let mut slots = slots(&greeting, child);
        if wait::any(&mut slots, greeting.until()).map_err(Error::cannot(WAIT))? == 0 {
            return Err(timed_out(child));
        }
        exited = matches!(slots, [_, _, Slot::EventDone]);
    }
}

/// What a handshake waits for.
fn slots<'a>(greeting: &'a Greeting, child: Option<&'a Child>) -> [Slot<'a>; 3] {
    let room = if greeting.wants_room() { Slot::Room(greeting.end()) } else { Slot::Off };
    let exit = child.map_or(Slot::Off, |child| Slot::Event(child.child_handle()));
    [Slot::Event(greeting.end()), room, exit]
}

pub(crate) fn timed_out(child: Option<&Child>) -> Error {
    Error::new(ErrorKind::TimedOut { waiting_for: "the handshake", peer: Peer::of(child) })
}

/// Adds how the worker ended.
fn explain(error: Error, child: Option<&Child>) -> Error {
    let (ErrorKind::Died { .. }, Some(child)) = (error.kind(), child) else { return error };
    match status_of(child.child_handle(), Instant::now().checked_add(END_TAKES)) {
        Some(status) => Error::new(ErrorKind::Died { status: Some(status) }),
        None => error,
    }
}
