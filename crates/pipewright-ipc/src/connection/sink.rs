//! Destinations of the bytes of a body.

use std::io;

use pipewright_os::channel::shm::{BLOCK_BYTES, Seen};

/// A destination of the bytes of a body, which come in order.
pub(crate) trait BodySink {
    /// Takes bytes of this process's own memory.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Takes bytes of the other side's memory, which may change while they are read.
    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()>;
    /// Returns a buffer that the system may append the bytes to.
    fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

/// Appends to a buffer.
impl BodySink for &mut Vec<u8> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.try_reserve(bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()> {
        memory.append_to(at, count, self)
    }

    fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        Some(self)
    }
}

/// Fills a slice from its front. The slice has to be as long as the bytes taken.
pub(crate) struct Fill<'a> {
    pub(crate) to: &'a mut [u8],
    pub(crate) filled: usize,
}

impl Fill<'_> {
    fn next(&mut self, count: usize) -> io::Result<&mut [u8]> {
        let place = self.to.get_mut(self.filled..).and_then(|rest| rest.get_mut(..count));
        self.filled += count;
        place.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl BodySink for Fill<'_> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.next(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()> {
        memory.copy_to(at, self.next(count)?)
    }
}

/// Folds block by block. Keeps the bytes of an incomplete block until more arrive.
pub(crate) struct Fold<B, F> {
    /// The value so far. `Some` between two calls.
    folded: Option<B>,
    add: F,
    kept: [u8; BLOCK_BYTES],
    count: usize,
}

impl<B, F: FnMut(B, &[u8]) -> B> Fold<B, F> {
    pub(crate) fn new(start: B, add: F) -> Fold<B, F> {
        Fold { folded: Some(start), add, kept: [0; BLOCK_BYTES], count: 0 }
    }

    /// Returns the value after the last block, which may be shorter than the others.
    pub(crate) fn finish(mut self) -> Option<B> {
        self.add_kept();
        self.folded
    }

    fn add_kept(&mut self) {
        let kept = self.kept.get(..self.count).unwrap_or_default();
        if !kept.is_empty() {
            self.folded = self.folded.take().map(|folded| (self.add)(folded, kept));
            self.count = 0;
        }
    }

    /// Appends to the kept bytes, and adds the block once it is full.
    fn keep(&mut self, take: impl FnOnce(&mut Fill<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut kept = Fill { to: &mut self.kept, filled: self.count };
        take(&mut kept)?;
        self.count = kept.filled;
        if self.count == BLOCK_BYTES {
            self.add_kept();
        }
        Ok(())
    }

    /// Splits a number of bytes: those that complete the kept block, those of whole blocks, and those to keep.
    fn split(&self, count: usize) -> [usize; 3] {
        let first = if self.count == 0 { 0 } else { count.min(BLOCK_BYTES - self.count) };
        let last = (count - first) % BLOCK_BYTES;
        [first, count - first - last, last]
    }
}

impl<B, F: FnMut(B, &[u8]) -> B> BodySink for Fold<B, F> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let [first, whole, _] = self.split(bytes.len());
        let (first, rest) = bytes.split_at(first);
        let (whole, last) = rest.split_at(whole);
        self.keep(|kept| kept.take(first))?;
        let blocks = whole.chunks(BLOCK_BYTES);
        self.folded = self.folded.take().map(|folded| blocks.fold(folded, &mut self.add));
        self.keep(|kept| kept.take(last))
    }

    #[inline]
    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()> {
        let [first, whole, last] = self.split(count);
        self.keep(|kept| kept.take_shared(memory, at, first))?;
        if let Some(folded) = self.folded.take() {
            let add = |folded, block: &[u8; BLOCK_BYTES]| (self.add)(folded, block);
            self.folded = Some(memory.fold_blocks(at + first, whole, folded, add)?);
        }
        self.keep(|kept| kept.take_shared(memory, at + first + whole, last))
    }
}

/// Discards everything.
pub(crate) struct Discard;

impl BodySink for Discard {
    fn take(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn take_shared(&mut self, _: &Seen, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
}
