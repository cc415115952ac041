//! A message that is filled in where the other side will read it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::core::Core;
use crate::connection::Connection;
use crate::error::Error;
use crate::ring::Place;
use crate::wire::{Header, kind};

/// Room for a message, to be filled in and sent: in the ring, or in this process's own memory if the ring has no room.
///
/// Contains bytes of earlier messages of this side, or zeros, at first.
///
/// # Drop
/// Sends nothing, and frees the room.
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
        core.connection.check_may_send(bytes as u64)?;
        let sleeps = core
            .connection
            .ring
            .as_ref()
            .is_some_and(|it| it.producer.sleeps(&it.theirs).is_some());
        let is_small = bytes < core.connection.limits.threshold_bytes && sleeps;
        let place = if is_small { None } else { core.connection.reserve(bytes)? };
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

    /// Sends the message.
    ///
    /// # Errors
    /// Those of [`Channel::send_bytes`](super::Channel::send_bytes).
    pub fn send(mut self) -> Result<(), Error> {
        match &mut self.room {
            Room::InRing(place, bytes) => {
                let (place, bytes) = (*place, *bytes as u64);
                let header = Header::new(kind::MESSAGE, bytes as usize);
                self.core.connection.commit(place, &header);
                self.core.connection.count_message_sent(bytes, 1);
                self.core.drive(self.until, Connection::flush)
            }
            Room::Own(buffer) => {
                let buffer = std::mem::take(buffer);
                let sent = self.core.send((kind::MESSAGE, 0), buffer.as_slice(), self.until);
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
                let ring = self.core.connection.ring.as_ref();
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
                let ring = self.core.connection.ring.as_mut();
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
