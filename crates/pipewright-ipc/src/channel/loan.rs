//! A message that is written where the other side will read it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::core::Core;
use crate::error::Error;
use crate::ring::Place;
use crate::wire::{Header, kind};

/// Room for a message, to be filled in and sent: in the ring where there is room in it, else in our own
/// memory.
///
/// What stands in it at first are bytes of earlier messages of ours, or zeros.
///
/// # Drop
/// Nothing is sent, and the room is free again.
pub struct Loan<'a> {
    core: &'a mut Core,
    room: Room,
    until: Option<Instant>,
}

enum Room {
    InRing(Place, usize),
    Own(Vec<u8>),
}

impl<'a> Loan<'a> {
    pub(super) fn new(
        core: &'a mut Core,
        bytes: usize,
        until: Option<Instant>,
    ) -> Result<Loan<'a>, Error> {
        core.line.may_send(bytes as u64)?;
        let sleeps = core.line.ring.as_ref().is_some_and(|it| it.out.sleeps(&it.theirs).is_some());
        let is_small = bytes < core.line.limits.threshold_bytes && sleeps;
        let place = if is_small { None } else { core.line.reserve(bytes)? };
        let room = match place {
            Some(place) => Room::InRing(place, bytes),
            None => {
                let mut buffer = std::mem::take(&mut core.scratch);
                buffer.clear();
                buffer.try_reserve(bytes).map_err(|_| no_memory())?;
                buffer.resize(bytes, 0);
                Room::Own(buffer)
            }
        };
        Ok(Loan { core, room, until })
    }

    /// Sends what was filled in.
    ///
    /// # Errors
    /// As [`Channel::send_bytes`](super::Channel::send_bytes).
    pub fn send(mut self) -> Result<(), Error> {
        let header = Header::new(kind::MESSAGE, self.len());
        match &mut self.room {
            Room::InRing(place, bytes) => {
                let (place, bytes) = (*place, *bytes as u64);
                self.core.line.commit(place, &header);
                self.core.line.note_sent(bytes, 1);
                let sent = self.core.line.publish().and_then(|()| self.core.hand_over(self.until));
                sent.map_err(|error| self.core.explain(error, self.until))
            }
            Room::Own(buffer) => {
                let buffer = std::mem::take(buffer);
                let sent = self.core.send(header, &buffer, self.until);
                self.core.scratch = buffer;
                sent
            }
        }
    }
}

fn no_memory() -> Error {
    std::io::Error::from(std::io::ErrorKind::OutOfMemory).into()
}

impl Deref for Loan<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.room {
            Room::InRing(place, bytes) => {
                let ring = self.core.line.ring.as_ref();
                ring.and_then(|ring| ring.ours.get(place.body(), *bytes)).unwrap_or_default()
            }
            Room::Own(buffer) => buffer,
        }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::InRing(place, bytes) => {
                let ring = self.core.line.ring.as_mut();
                ring.and_then(|ring| ring.ours.get_mut(place.body(), *bytes)).unwrap_or_default()
            }
            Room::Own(buffer) => buffer,
        }
    }
}

impl fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("len", &self.len()).finish_non_exhaustive()
    }
}
