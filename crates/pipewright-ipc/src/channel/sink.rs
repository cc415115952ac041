//! Where the bytes of a body go.

use std::io;

use pipewright_os::shm::Seen;

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
