//! A message that is filled in where the other side will read it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::core::Core;
use crate::connection::Connection;
use crate::error::Error;
use crate::ring::RecordPlace;
use crate::wire::{Header, kind};

/// Room for a message, to be filled in and sent: in shared memory, or in this process's own memory if there is no room
/// in shared memory.
///
/// Initially contains zeros, or bytes of earlier messages of this connection.
///
/// In shared memory there is room for at most half of [`ring_bytes`](crate::Options::ring_bytes), less 32 bytes. A longer
/// message is copied there when it is sent, and [`send_filled`](super::Channel::send_filled) avoids that. A ring of four messages
/// has room for one that is filled in beside one that is being read.
///
/// # Drop
/// Sends nothing, and frees the room.
pub struct Loan<'a> {
    core: &'a mut Core,
    buffer: Buffer,
    until: Option<Instant>,
}

enum Buffer {
    InRing(RecordPlace, usize),
    Own(Vec<u8>),
}

impl<'a> Loan<'a> {
    pub(super) fn new(
        core: &'a mut Core,
        bytes: usize,
        until: Option<Instant>,
    ) -> Result<Loan<'a>, Error> {
        core.connection.check_may_send(bytes as u64)?;
        let has_to_wake = core.connection.sleep_to_end(bytes).is_some();
        let place = if has_to_wake { None } else { core.connection.reserve(bytes)? };
        let buffer = match place {
            Some(place) => Buffer::InRing(place, bytes),
            None => {
                let mut buffer = std::mem::take(&mut core.scratch);
                buffer.truncate(bytes);
                let more = bytes - buffer.len();
                buffer.try_reserve(more).map_err(|_| no_memory())?;
                // What it has may stay: zeros for all of it would take as long as the message itself.
                buffer.resize(bytes, 0);
                Buffer::Own(buffer)
            }
        };
        Ok(Loan { core, buffer, until })
    }

    /// Sends the message.
    ///
    /// # Errors
    /// Those of [`Channel::send_bytes`](super::Channel::send_bytes).
    pub fn send(mut self) -> Result<(), Error> {
        match &mut self.buffer {
            Buffer::InRing(place, bytes) => {
                let (place, bytes) = (*place, *bytes as u64);
                let header = Header::new(kind::MESSAGE, bytes as usize);
                self.core.connection.commit(place, &header);
                self.core.connection.count_message_sent(bytes, 1);
                self.core.drive(self.until, Connection::flush)
            }
            Buffer::Own(buffer) => {
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
        match &self.buffer {
            Buffer::InRing(place, bytes) => {
                let ring = self.core.connection.ring.as_ref();
                ring.and_then(|ring| ring.ours.get(place.body(), *bytes)).unwrap_or_default()
            }
            Buffer::Own(buffer) => buffer,
        }
    }
}

impl DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::InRing(place, bytes) => {
                let ring = self.core.connection.ring.as_mut();
                ring.and_then(|ring| ring.ours.get_mut(place.body(), *bytes)).unwrap_or_default()
            }
            Buffer::Own(buffer) => buffer,
        }
    }
}

impl fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("len", &self.len()).finish_non_exhaustive()
    }
}
