//! A mapping of a descriptor, taken away when dropped.

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
    /// The process that has it mapped. In a fork something else may be at that address.
    home: Generation,
}

// SAFETY: memory belongs to no thread; who may write it is said by the types that own a mapping.
unsafe impl Send for Mapping {}
// SAFETY: it gives addresses; what is done there, and why it may be, is said by the types that own one.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps that much of the object, from its start on.
    pub(super) fn of(fd: impl AsFd, length: usize, rights: ProtFlags) -> io::Result<Mapping> {
        // SAFETY: a new mapping where there is none, so nothing of ours is changed by it.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, fd, 0) };
        let start = start.map_err(in_call("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length, home: Generation::current() })
    }

    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns true if it is a mapping of this process, and not of one that this is a fork of.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// What only Linux has.
    #[cfg(target_os = "linux")]
    pub(super) fn advise(&self, advice: rustix::mm::Advice) -> io::Result<()> {
        let start: *mut c_void = self.start.as_ptr().cast();
        // SAFETY: our own mapping; the advice that is given here changes no byte of it.
        Ok(unsafe { rustix::mm::madvise(start, self.length, advice) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        let start: *mut c_void = self.start.as_ptr().cast();
        // Ignored: where it cannot be taken out of a larger one (ENOMEM), it stays.
        // SAFETY: made by `of`, in this process, and nothing borrows it any more.
        let _ = unsafe { munmap(start, self.length) };
    }
}
