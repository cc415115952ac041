//! Pages of their own, by `mmap`.

use std::io;
use std::ptr::NonNull;
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A private mapping.
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, as the memory of a box does.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn zeroed(bytes: usize) -> io::Result<Memory> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes.max(1), protection, MapFlags::PRIVATE)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Memory { start, bytes };
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            let start = memory.start.as_ptr().cast();
            // SAFETY: the pages are those of this mapping, and the advice does not change their contents.
            unsafe { madvise(start, bytes.max(1), Advice::LinuxDontDump)? };
        }
        Ok(memory)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has that many initialized bytes, and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to it is left. Ignored: it cannot fail for one.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes.max(1)) };
    }
}
