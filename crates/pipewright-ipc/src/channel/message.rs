//! A message: received and copied out or read in place, filled in where the other side reads it, or a value.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Instant;
use std::{fmt, io};

use pipewright::Handle;
#[cfg(feature = "serde")]
use serde::{Serialize, de::DeserializeOwned};

#[cfg(feature = "serde")]
use super::Channel;
use super::core::Core;
#[cfg(feature = "serde")]
use crate::codec;
use crate::connection::{Connection, Discard, Fill, Fold, StepResult};
use crate::error::Error;
use crate::ring::RecordPlace;
use crate::wire::{Header, kind};

/// A message that is being received. The first part of a long message can be read while the other side still writes
/// the last.
///
/// # Drop
/// The next call that receives discards the unread bytes.
pub struct Message<'a, R = super::Raw> {
    core: &'a mut Core,
    until: Option<Instant>,
    types: PhantomData<fn() -> R>,
}

impl<'a, R> Message<'a, R> {
    pub(crate) fn new(core: &'a mut Core, until: Option<Instant>) -> Message<'a, R> {
        Message { core, until, types: PhantomData }
    }

    /// Returns the length of the message in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        let body = self.core.connection.body();
        // Never more than the agreed maximum, which fits.
        body.map_or(0, |body| usize::try_from(body.total).unwrap_or(usize::MAX))
    }

    /// Returns true if the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the handles that came with the message.
    pub fn take_handles(&mut self) -> Vec<Handle> {
        self.core.connection.take_handles()
    }

    /// Copies the message to a new buffer.
    ///
    /// # Errors
    /// The other side dies, violates the protocol or closes the connection before it has sent the whole message. The
    /// timeout expires. There is not enough memory.
    pub fn bytes(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Copies the message into a buffer, which can be reused. Its previous contents are lost.
    ///
    /// # Errors
    /// Those of [`bytes`](Self::bytes).
    #[inline]
    pub fn read_into(self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.core.read_into(buffer, self.until)
    }

    /// Reads the message in place.
    #[must_use]
    pub fn lease(self) -> Lease<'a> {
        Lease { core: self.core, until: self.until }
    }
}

/// For tasks of a tokio runtime: feature `tokio`.
#[cfg(feature = "tokio")]
impl<R> Message<'_, R> {
    /// Like [`bytes`](Self::bytes), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the message.
    ///
    /// # Errors
    /// Those of [`bytes`](Self::bytes); `Unsupported` outside of a tokio runtime.
    pub async fn bytes_async(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into_async(&mut bytes).await?;
        Ok(bytes)
    }

    /// Like [`read_into`](Self::read_into), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the rest of the message.
    ///
    /// # Errors
    /// Those of [`read_into`](Self::read_into); `Unsupported` outside of a tokio runtime.
    pub async fn read_into_async(self, mut buffer: &mut Vec<u8>) -> Result<(), Error> {
        let Message { core, until, .. } = self;
        core.connection.prepare_buffer(buffer)?;
        core.drive_async(until, |connection| connection.take_rest(&mut buffer)).await
    }
}

/// The most bytes that [`Lease::for_each_chunk`] passes at once: they stay in the L1 cache.
const CHUNK_BYTES: usize = 16 << 10;

/// A message that is read in place, in the memory of the other side.
///
/// The other side could change the bytes while they are read, so there is no `&[u8]` over them. [`fold`](Self::fold)
/// reads a block at a time into registers, at the speed of the memory. [`for_each_chunk`](Self::for_each_chunk) copies
/// longer chunks to a buffer that stays in the L1 cache, and [`Read`](io::Read) copies to any buffer. Your code sees
/// copies, which do not change.
///
/// Reading frees room in shared memory for new messages at once.
///
/// # Drop
/// The next call that receives discards the unread bytes.
///
/// ```no_run
/// # fn example(channel: &mut pipewright_ipc::Channel) -> Result<(), pipewright_ipc::Error> {
/// let lines = channel.recv()?.lease().fold(0, |lines, block| {
///     lines + block.iter().filter(|byte| **byte == b'\n').count()
/// })?;
/// # let _ = lines;
/// # Ok(())
/// # }
/// ```
pub struct Lease<'a> {
    core: &'a mut Core,
    until: Option<Instant>,
}

impl Lease<'_> {
    /// Returns the number of unread bytes.
    #[must_use]
    pub fn left(&self) -> usize {
        let body = self.core.connection.body();
        body.map_or(0, |body| usize::try_from(body.left).unwrap_or(usize::MAX))
    }

    /// Skips this many bytes, or all that are left.
    ///
    /// # Errors
    /// Those of [`Message::bytes`].
    pub fn skip(&mut self, bytes: usize) -> Result<(), Error> {
        let rest = self.left().saturating_sub(bytes);
        self.core.drive(self.until, |connection| {
            let left = connection.body().map_or(0, |body| body.left);
            connection.take((left as usize).saturating_sub(rest), &mut Discard)
        })
    }

    /// Folds all unread bytes in order, in blocks of 64 bytes. Only the last block may be shorter.
    ///
    /// # Errors
    /// Those of [`Message::bytes`].
    pub fn fold<B>(self, start: B, add: impl FnMut(B, &[u8]) -> B) -> Result<B, Error> {
        let mut fold = Fold::new(start, add);
        self.core.drive(self.until, |connection| connection.take_rest(&mut fold))?;
        // `None` only after an error.
        fold.finish().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
    }

    /// Passes all unread bytes in order, in chunks of at most 16 KiB.
    ///
    /// # Errors
    /// Those of [`Message::bytes`].
    pub fn for_each_chunk(mut self, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            let filled = self.fill(&mut chunk)?;
            if filled == 0 {
                self.core.connection.end_message();
                return Ok(());
            }
            take(chunk.get(..filled).unwrap_or_default());
        }
    }

    /// Reads what has arrived: at least one byte, unless the message is at its end.
    #[inline]
    fn fill(&mut self, to: &mut [u8]) -> Result<usize, Error> {
        let most = to.len().min(self.left());
        let mut fill = Fill { to, filled: 0 };
        self.core.drive(self.until, |connection| {
            let progress = connection.take(most, &mut fill)?;
            // One byte is enough.
            Ok(if fill.filled > 0 { StepResult::Done } else { progress })
        })?;
        Ok(fill.filled)
    }
}

impl io::Read for Lease<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.fill(to).map_err(io::Error::from)
    }
}

impl<R> fmt::Debug for Message<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("left", &self.left()).finish_non_exhaustive()
    }
}

// A message that is filled in where the other side will read it.

/// Room for a message, to be filled in and sent: in shared memory, or in this process's own memory if there is no room
/// in shared memory.
///
/// Initially contains zeros, or bytes of earlier messages of this connection.
///
/// In shared memory there is room for at most half of [`ring_bytes`](crate::Options::ring_bytes), less 32 bytes. A
/// longer message is copied there when it is sent, and [`send_filled`](super::Channel::send_filled) avoids that. A ring
/// of four messages has room for one that is filled in beside one that is being read.
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

// Values as messages, by serde and postcard.

#[cfg(feature = "serde")]
impl<S: Serialize, R> Channel<S, R> {
    /// Sends a value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized, and nothing was sent. Those of
    /// [`send_bytes`](Self::send_bytes).
    pub fn send(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send((kind::MESSAGE, 0), buffer.as_slice(), until);
        self.core.scratch = buffer;
        sent
    }

    /// Like [`send`](Self::send), without blocking a thread.
    ///
    /// # Cancellation
    /// As for [`send_bytes_async`](Self::send_bytes_async).
    ///
    /// # Errors
    /// Those of [`send`](Self::send); `Unsupported` outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn send_async(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send_async(buffer.as_slice().into(), until).await;
        self.core.scratch = buffer;
        sent
    }

    fn encode(&mut self, value: &S) -> Result<Vec<u8>, Error> {
        let mut buffer = std::mem::take(&mut self.core.scratch);
        buffer.clear();
        codec::encode_into(value, buffer)
    }
}

#[cfg(feature = "serde")]
impl<R: DeserializeOwned> Message<'_, R> {
    /// Returns the value. Deserializes a private copy, so that the other side cannot change it meanwhile.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type. Those of
    /// [`bytes`](Self::bytes).
    pub fn value(self) -> Result<R, Error> {
        let Message { core, until, .. } = self;
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = core.read_into(&mut buffer, until);
        let value = read.and_then(|()| codec::decode(&buffer));
        core.scratch = buffer;
        value
    }

    /// Like [`value`](Self::value), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the message.
    ///
    /// # Errors
    /// Those of [`value`](Self::value); `Unsupported` outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn value_async(self) -> Result<R, Error> {
        let Message { core, until, .. } = self;
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = Message::<R>::new(core, until).read_into_async(&mut buffer).await;
        let value = read.and_then(|()| codec::decode(&buffer));
        core.scratch = buffer;
        value
    }
}
