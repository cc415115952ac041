//! Where the bytes of a body go.

use std::io;

use pipewright_os::channel::shm::{BLOCK_BYTES, Seen};

/// Takes the bytes of a body, in order.
pub(super) trait Sink {
    /// Bytes of our own memory.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Bytes of the other side's memory, which may change while they are looked at.
    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()>;
    /// A buffer that the system may put the bytes into.
    fn buffer(&mut self) -> Option<&mut Vec<u8>> {
        None
    }
}

/// Appends to a buffer.
impl Sink for &mut Vec<u8> {
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

/// Fills a slice from its front; it has to be as long as what is asked for.
pub(super) struct Fill<'a> {
    pub(super) to: &'a mut [u8],
    pub(super) filled: usize,
}

impl Fill<'_> {
    fn next(&mut self, count: usize) -> io::Result<&mut [u8]> {
        let place = self.to.get_mut(self.filled..).and_then(|rest| rest.get_mut(..count));
        self.filled += count;
        place.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Sink for Fill<'_> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.next(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn take_shared(&mut self, memory: &Seen, at: usize, count: usize) -> io::Result<()> {
        memory.copy_to(at, self.next(count)?)
    }
}

/// Folds block by block. What does not fill one is kept until more comes.
pub(super) struct Fold<B, F> {
    /// Always there between two calls.
    folded: Option<B>,
    add: F,
    kept: [u8; BLOCK_BYTES],
    count: usize,
}

impl<B, F: FnMut(B, &[u8]) -> B> Fold<B, F> {
    pub(super) fn new(start: B, add: F) -> Fold<B, F> {
        Fold { folded: Some(start), add, kept: [0; BLOCK_BYTES], count: 0 }
    }

    /// What has come of it, with the last block, which may be a short one.
    pub(super) fn end(mut self) -> Option<B> {
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

    /// Keeps what fills it up, and adds the block if that is full then.
    fn keep(&mut self, take: impl FnOnce(&mut Fill<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut kept = Fill { to: &mut self.kept, filled: self.count };
        take(&mut kept)?;
        self.count = kept.filled;
        if self.count == BLOCK_BYTES {
            self.add_kept();
        }
        Ok(())
    }

    /// How so many bytes are taken: what fills up what is kept, whole blocks, and what is to be kept.
    fn split(&self, count: usize) -> [usize; 3] {
        let first = if self.count == 0 { 0 } else { count.min(BLOCK_BYTES - self.count) };
        let last = (count - first) % BLOCK_BYTES;
        [first, count - first - last, last]
    }
}

impl<B, F: FnMut(B, &[u8]) -> B> Sink for Fold<B, F> {
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

/// Throws everything away.
pub(super) struct Nowhere;

impl Sink for Nowhere {
    fn take(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn take_shared(&mut self, _: &Seen, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
}
