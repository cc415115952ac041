//! Aligned memory, as direct I/O requires it.

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// A byte buffer whose start is a multiple of some power of two.
///
/// Every byte is initialized from the start.
///
/// ```
/// # use pipewright_os::base::aligned::AlignedBuf;
/// let mut buffer = AlignedBuf::zeroed(8192, 4096)?;
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(buffer.as_ptr() as usize % 4096, 0);
/// buffer.truncate(5);
/// assert_eq!(&buffer[..], b"hello");
/// buffer.expand();
/// assert_eq!(buffer.len(), 8192);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AlignedBuf {
    // Not a Box: the kernel may write to the memory while the buffer moves to another owner, and
    // each move of a Box would assert unique access.
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its memory, which is bound to no thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Returns `len` zero bytes, aligned to `align`.
    ///
    /// # Errors
    /// `InvalidInput`: `align` is not a power of two. `OutOfMemory`: the allocation failed.
    pub fn zeroed(len: usize, align: usize) -> io::Result<AlignedBuf> {
        let layout = Layout::from_size_align(len, align).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "invalid size or alignment")
        })?;
        if len == 0 {
            // No memory, but still an aligned address.
            let start = NonNull::new(ptr::without_provenance_mut(layout.align()));
            let start = start.ok_or(io::ErrorKind::InvalidInput)?;
            return Ok(AlignedBuf { start, len, layout });
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AlignedBuf { start, len, layout })
    }

    /// Copies these bytes to a new buffer, aligned to `align`.
    ///
    /// # Errors
    /// As for [`AlignedBuf::zeroed`].
    pub fn copy_of(bytes: &[u8], align: usize) -> io::Result<AlignedBuf> {
        let mut new = AlignedBuf::zeroed(bytes.len(), align)?;
        new.copy_from_slice(bytes);
        Ok(new)
    }

    /// Returns the length that the buffer was made with.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// Returns the alignment of the first byte.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }

    /// Shortens the buffer to `len`; a longer `len` changes nothing. Frees no memory.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Restores the length that the buffer was made with. The bytes past the shortened length are unchanged.
    pub fn expand(&mut self) {
        self.len = self.capacity();
    }

    /// Returns the address of the bytes, for a kernel that writes to them in the background.
    #[cfg(all(feature = "disk", any(target_os = "linux", windows)))]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Default for AlignedBuf {
    /// Returns a buffer without bytes or memory.
    fn default() -> AlignedBuf {
        AlignedBuf { start: NonNull::dangling(), len: 0, layout: Layout::new::<()>() }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes, which this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and mutably borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("alignment", &self.alignment())
            .finish()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity() > 0 {
            // SAFETY: allocated with that layout, and freed once.
            unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AlignedBuf;

    #[test]
    fn every_alignment_is_respected_and_every_byte_is_zero() {
        for shift in 0..16 {
            let align = 1 << shift;
            let buffer = AlignedBuf::zeroed(align * 3 + 1, align).unwrap();
            assert_eq!(buffer.as_ptr() as usize % align, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            assert_eq!(AlignedBuf::zeroed(0, align).unwrap().as_ptr() as usize % align, 0);
        }
        assert_eq!(AlignedBuf::zeroed(0, 4096).unwrap().len(), 0);
    }

    #[test]
    fn nonsense_is_an_error() {
        for (len, align) in [(1, 0), (1, 3), (usize::MAX, 4096)] {
            assert!(AlignedBuf::zeroed(len, align).is_err(), "{len} at {align}");
        }
        let error = AlignedBuf::zeroed(isize::MAX as usize - 8192, 4096).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    }
}
