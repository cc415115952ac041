//! Relaxed atomic loads, which may race with any writer.

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
