//! A message that has come: copied out, or read in place.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::Instant;

use pipewright::Handle;

use super::core::Core;
use super::incoming::Progress;
use super::sink::{Fill, Fold, Nowhere};
use crate::error::Error;

/// A message that has come, or is coming: of a long one the first part is here while the last is being
/// written.
///
/// # Drop
/// What was not read of it is thrown away by the next call that receives.
pub struct Message<'a, R = super::Raw> {
    core: &'a mut Core,
    until: Option<Instant>,
    types: PhantomData<fn() -> R>,
}

impl<'a, R> Message<'a, R> {
    pub(crate) fn new(core: &'a mut Core, until: Option<Instant>) -> Message<'a, R> {
        Message { core, until, types: PhantomData }
    }

    /// How long the message is, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        let body = self.core.line.incoming_body();
        // Never more than was agreed, and that fits.
        body.map_or(0, |body| usize::try_from(body.total).unwrap_or(usize::MAX))
    }

    /// Whether the message has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The handles that came with the message, each once.
    pub fn take_handles(&mut self) -> Vec<Handle> {
        self.core.line.body().map(|body| std::mem::take(&mut body.handles)).unwrap_or_default()
    }

    /// The message, copied out.
    ///
    /// # Errors
    /// The other side dies, breaks the protocol or stops while it sends the rest; the time is over; there
    /// is no memory.
    pub fn bytes(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// As [`bytes`](Self::bytes), into a buffer that can be used again and again. What was in it is
    /// gone.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    #[inline]
    pub fn read_into(self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.make_room(buffer)?;
        self.core.receive(self.until, |line| line.take(usize::MAX, &mut &mut *buffer))?;
        self.core.line.end_of_body();
        Ok(())
    }

    pub(super) fn make_room(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        buffer.clear();
        buffer.try_reserve(self.len()).map_err(|_| Error::from(io::Error::from(NO_MEMORY)))
    }

    /// The message, to be read where it is.
    #[must_use]
    pub fn lease(self) -> Lease<'a> {
        Lease { core: self.core, until: self.until }
    }

    #[cfg(any(feature = "serde", feature = "tokio"))]
    pub(super) fn core(self) -> (&'a mut Core, Option<Instant>) {
        (self.core, self.until)
    }
}

const NO_MEMORY: io::ErrorKind = io::ErrorKind::OutOfMemory;

/// How much of a message is shown at once by [`Lease::for_each_chunk`]: what stays in the nearest cache.
const CHUNK_BYTES: usize = 16 << 10;

/// A message that is read where it is, in the memory of the other side.
///
/// That side could change the bytes while they are read, so there is no `&[u8]` over them.
/// [`fold`](Self::fold) reads them into registers, a block at a time, and is as fast as the memory is.
/// What [`for_each_chunk`](Self::for_each_chunk) shows has been brought into our nearest cache, in longer
/// pieces, and [`Read`](io::Read) copies them to wherever they shall be. What was shown does not
/// change.
///
/// The place in the ring is free for new messages as soon as it has been read.
///
/// # Drop
/// What was not read is thrown away by the next call that receives.
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
    /// How many bytes have not been read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        let body = self.core.line.incoming_body();
        body.map_or(0, |body| usize::try_from(body.left).unwrap_or(usize::MAX))
    }

    /// Passes over so many bytes, or over what is left.
    ///
    /// # Errors
    /// As [`Message::bytes`].
    pub fn skip(&mut self, bytes: usize) -> Result<(), Error> {
        let rest = self.left().saturating_sub(bytes);
        self.core.receive(self.until, |line| {
            let left = line.incoming_body().map_or(0, |body| body.left);
            line.take((left as usize).saturating_sub(rest), &mut Nowhere)
        })
    }

    /// Folds all bytes that have not been read yet, in order, in blocks of 64 bytes, of which only the
    /// last may be shorter.
    ///
    /// # Errors
    /// As [`Message::bytes`].
    pub fn fold<B>(self, start: B, add: impl FnMut(B, &[u8]) -> B) -> Result<B, Error> {
        let mut fold = Fold::new(start, add);
        self.core.receive(self.until, |line| line.take(usize::MAX, &mut fold))?;
        self.core.line.end_of_body();
        // Gone after an error alone.
        fold.end().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput).into())
    }

    /// Shows all bytes that have not been read yet, in order, in pieces of at most 16 KiB.
    ///
    /// # Errors
    /// As [`Message::bytes`].
    pub fn for_each_chunk(mut self, mut show: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            let filled = self.fill(&mut chunk)?;
            if filled == 0 {
                self.core.line.end_of_body();
                return Ok(());
            }
            show(chunk.get(..filled).unwrap_or_default());
        }
    }

    /// Reads as much as is there, and at least one byte unless the end was reached.
    #[inline]
    fn fill(&mut self, to: &mut [u8]) -> Result<usize, Error> {
        let most = to.len().min(self.left());
        let mut fill = Fill { to, filled: 0 };
        self.core.receive(self.until, |line| {
            let progress = line.take(most, &mut fill)?;
            // Something is enough.
            Ok(if fill.filled > 0 { Progress::Done } else { progress })
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
