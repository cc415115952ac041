//! Copies memory that may change meanwhile.
//!
//! This is no `memcpy`: of that the compiler may assume that its source stands still. What is copied
//! of bytes that change meanwhile is some mixture of old and new ones, and nothing else comes of it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::BLOCK_BYTES;

/// Copies bytes that somebody outside of this program may be writing to.
///
/// # Safety
/// That many bytes can be read at `from` and written at `to`, and the latter are nobody else's.
#[inline]
pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
    if count >= 1024 {
        // SAFETY: promised by the caller.
        return unsafe { string_move(from, to, count) };
    }
    // SAFETY: promised by the caller.
    unsafe { by_words(from, to, count) }
}

/// One instruction of the processor moves the bytes, and the compiler sees no access at all but what
/// the block may do at most: a relaxed atomic load for each byte. It is also what the C library's
/// `memcpy` uses for blocks of this size (measured: equal from 4 KiB on, and faster than loads of
/// eight bytes from 1 KiB on).
///
/// # Safety
/// As [`out`].
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
#[inline]
unsafe fn string_move(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: promised by the caller; the direction flag is clear by the rules of the ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// A block of bytes that somebody outside of this program may be writing to, as a value: it is in
/// registers until somebody wants it elsewhere.
///
/// # Safety
/// That many bytes can be read at `from`.
#[inline]
pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
    #[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
    {
        // SAFETY: promised by the caller.
        unsafe { load(from) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
    {
        let mut block = [0; BLOCK_BYTES];
        // SAFETY: promised by the caller.
        unsafe { by_words(from, block.as_mut_ptr(), BLOCK_BYTES) };
        block
    }
}

/// Four loads of sixteen bytes, which every such processor has, and which to the compiler are what
/// [`string_move`] is. Relaxed atomic loads of eight bytes would be kept apart by it: a sum of them goes
/// one by one, at less than the speed of the memory.
///
/// # Safety
/// As [`block`].
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
#[inline]
unsafe fn load(from: *const u8) -> [u8; BLOCK_BYTES] {
    use std::arch::x86_64::__m128i;
    let (first, second, third, fourth): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: promised by the caller; no alignment is asked for.
    unsafe {
        std::arch::asm!(
            "movdqu {first}, [{from}]",
            "movdqu {second}, [{from} + 16]",
            "movdqu {third}, [{from} + 32]",
            "movdqu {fourth}, [{from} + 48]",
            from = in(reg) from,
            first = out(xmm_reg) first,
            second = out(xmm_reg) second,
            third = out(xmm_reg) third,
            fourth = out(xmm_reg) fourth,
            options(nostack, preserves_flags, readonly)
        );
    }
    // SAFETY: plain bytes, and as many.
    unsafe { std::mem::transmute([first, second, third, fourth]) }
}

/// A relaxed atomic load for every eight bytes, and for every single byte before and after those.
///
/// # Safety
/// As [`out`].
#[inline]
unsafe fn by_words(from: *const u8, to: *mut u8, count: usize) {
    let head = from.align_offset(8).min(count);
    let words = (count - head) / 8;
    // SAFETY: the first of these bytes, as promised by the caller.
    unsafe { by_bytes(from, to, 0..head) };
    for word in 0..words {
        let at = head + word * 8;
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        // SAFETY: eight bytes at a multiple of eight, touched by atomic operations only.
        let place = unsafe { &*from.cast::<AtomicU64>() };
        let value = place.load(Ordering::Relaxed);
        // SAFETY: room for eight bytes that are the caller's alone.
        unsafe { to.cast::<u64>().write_unaligned(value) };
    }
    // SAFETY: the last of these bytes.
    unsafe { by_bytes(from, to, head + words * 8..count) };
}

/// # Safety
/// As [`out`], of that part of the blocks.
unsafe fn by_bytes(from: *const u8, to: *mut u8, part: std::ops::Range<usize>) {
    for at in part {
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        // SAFETY: one byte that is there, touched by atomic operations only.
        let place = unsafe { &*from.cast::<AtomicU8>() };
        let value = place.load(Ordering::Relaxed);
        // SAFETY: room that is the caller's alone.
        unsafe { to.write(value) };
    }
}
