//! A mapping of a descriptor, unmapped on drop.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::call_error::in_call;
use crate::base::generation::Generation;

/// Mapped memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    /// The process that has the mapping. In a fork the address may be used for something else.
    created_in: Generation,
}

// SAFETY: memory belongs to no thread. The types that own a mapping decide who may write it.
unsafe impl Send for Mapping {}
// SAFETY: it only returns addresses. The types that own a mapping decide what may be done there.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of the object.
    pub(super) fn of(fd: impl AsFd, length: usize, rights: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an unused address, so nothing of ours changes.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, fd, 0) };
        let start = start.map_err(in_call("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length, created_in: Generation::current() })
    }

    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns true if this process made the mapping. Returns false in a fork.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.created_in.is_current()
    }

    /// Gives the kernel advice on the mapping. Linux only.
    #[cfg(target_os = "linux")]
    pub(super) fn advise(&self, advice: rustix::mm::Advice) -> io::Result<()> {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: our own mapping; the advice used here changes no byte of it.
        Ok(unsafe { rustix::mm::madvise(start, self.length, advice) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_current() {
            return;
        }
        let start: *mut c_void = self.start.as_ptr().cast();
        // Ignored: a part of a larger mapping that cannot be split (ENOMEM) stays mapped. SAFETY: created by
        // `of` in this process, and no longer borrowed.
        let _ = unsafe { munmap(start, self.length) };
    }
}
