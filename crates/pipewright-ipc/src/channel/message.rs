//! A received message: copied out, or read in place.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::Instant;

use pipewright::Handle;

use super::core::Core;
use crate::connection::{Discard, Fill, Fold, StepResult};
use crate::error::Error;

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
    pub fn read_into(self, mut buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.core.connection.prepare_buffer(buffer)?;
        self.core.drive(self.until, |connection| connection.take_rest(&mut buffer))
    }

    /// Reads the message in place.
    #[must_use]
    pub fn lease(self) -> Lease<'a> {
        Lease { core: self.core, until: self.until }
    }

    #[cfg(any(feature = "serde", feature = "tokio"))]
    pub(super) fn core(self) -> (&'a mut Core, Option<Instant>) {
        (self.core, self.until)
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
