//! Copies memory that may change during the copy.
//!
//! `memcpy` is unsuitable: the compiler may assume that its source does not change. A copy of changing bytes is
//! some mixture of old and new bytes, and has no other effect.

use super::BLOCK_BYTES;
#[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
use words as imp;

/// Copies bytes that another process may be writing.
///
/// # Safety
/// `from` has to be readable and `to` writable for `count` bytes. Nobody else may use the bytes at `to`.
#[inline]
pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: promised by the caller.
    unsafe { imp::out(from, to, count) }
}

/// Returns a block of bytes that another process may be writing, as a value. It stays in registers if
/// possible.
///
/// # Safety
/// `from` has to be readable for [`BLOCK_BYTES`] bytes.
#[inline]
pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
    // SAFETY: promised by the caller.
    unsafe { imp::block(from) }
}

// Relaxed atomic loads, which may race with any writer.
mod words {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
    use super::BLOCK_BYTES;

    /// Copies with a relaxed atomic load for every eight bytes, and for every single byte before and after those.
    ///
    /// # Safety
    /// As for [`super::out`].
    #[inline]
    pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
        let head = from.align_offset(8).min(count);
        let words = (count - head) / 8;
        // SAFETY: the first of these bytes, as promised by the caller.
        unsafe { by_bytes(from, to, 0..head) };
        for word in 0..words {
            let at = head + word * 8;
            let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
            // SAFETY: eight bytes at a multiple of eight, touched only by atomic operations.
            let place = unsafe { &*from.cast::<AtomicU64>() };
            let value = place.load(Ordering::Relaxed);
            // SAFETY: space for eight bytes that only the caller uses.
            unsafe { to.cast::<u64>().write_unaligned(value) };
        }
        // SAFETY: the last of these bytes.
        unsafe { by_bytes(from, to, head + words * 8..count) };
    }

    /// Copies single bytes.
    ///
    /// # Safety
    /// As for [`super::out`], for that part of the bytes.
    unsafe fn by_bytes(from: *const u8, to: *mut u8, part: std::ops::Range<usize>) {
        for at in part {
            let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
            // SAFETY: one readable byte, touched only by atomic operations.
            let place = unsafe { &*from.cast::<AtomicU8>() };
            let value = place.load(Ordering::Relaxed);
            // SAFETY: a byte that only the caller uses.
            unsafe { to.write(value) };
        }
    }

    /// # Safety
    /// As for [`super::block`].
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
    #[inline]
    pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        // SAFETY: promised by the caller; the block is ours.
        unsafe { out(from, block.as_mut_ptr(), BLOCK_BYTES) };
        block
    }
}

// Instructions that are opaque to the compiler. It has to assume at most a relaxed atomic load of each byte.
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
mod imp {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;
    use std::mem::{self, MaybeUninit};

    use super::{BLOCK_BYTES, words};

    /// # Safety
    /// As for [`super::out`].
    #[inline]
    pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
        if count < 1024 {
            // SAFETY: promised by the caller.
            return unsafe { words::out(from, to, count) };
        }
        // SAFETY: as above.
        unsafe { string_move(from, to, count) }
    }

    /// Loads 16 bytes at a time. The compiler does not merge atomic loads of eight bytes, so that a sum would be
    /// slower than the memory.
    ///
    /// # Safety
    /// As for [`super::block`].
    #[inline]
    pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
        let mut parts = [MaybeUninit::uninit(); BLOCK_BYTES / VECTOR_BYTES];
        for (number, part) in parts.iter_mut().enumerate() {
            // SAFETY: a part of the bytes promised by the caller.
            part.write(unsafe { load(from.wrapping_add(number * VECTOR_BYTES)) });
        }
        // SAFETY: an array of plain bytes, all of which were just written.
        unsafe { mem::transmute(parts) }
    }

    /// Moves all bytes with one instruction. The C library's `memcpy` uses it too for blocks of this size
    /// (measured: equal from 4 KiB on, and faster than loads of eight bytes from 1 KiB on).
    ///
    /// # Safety
    /// As for [`super::out`].
    #[inline]
    unsafe fn string_move(from: *const u8, to: *mut u8, count: usize) {
        // SAFETY: promised by the caller; the ABI guarantees a clear direction flag.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") count => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
    }

    const VECTOR_BYTES: usize = size_of::<__m128i>();

    /// Reads a vector of bytes that another process may be writing.
    ///
    /// # Safety
    /// `from` has to be readable for [`VECTOR_BYTES`] bytes.
    #[inline]
    unsafe fn load(from: *const u8) -> __m128i {
        let part;
        // SAFETY: promised by the caller; the instruction requires no alignment, and every x86_64 processor has
        // it.
        unsafe {
            asm!(
                "movdqu {part}, [{from}]",
                from = in(reg) from,
                part = out(xmm_reg) part,
                options(nostack, preserves_flags, readonly)
            );
        }
        part
    }
}
