//! Instructions that the compiler does not look into. It sees no access at all but what they may do at
//! most: a relaxed atomic load for each byte.

use std::arch::asm;
use std::arch::x86_64::__m128i;
use std::mem::{self, MaybeUninit};

use super::{BLOCK_BYTES, words};

/// # Safety
/// As [`super::out`].
#[inline]
pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
    if count < 1024 {
        // SAFETY: promised by the caller.
        return unsafe { words::out(from, to, count) };
    }
    // SAFETY: the same.
    unsafe { string_move(from, to, count) }
}

/// Loads, because those of eight bytes would be kept apart by the compiler: a sum of them goes one by one,
/// at less than the speed of the memory.
///
/// # Safety
/// As [`super::block`].
#[inline]
pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
    let mut parts = [MaybeUninit::uninit(); BLOCK_BYTES / VECTOR_BYTES];
    for (number, part) in parts.iter_mut().enumerate() {
        // SAFETY: the first, second, ... of the bytes that the caller has promised.
        part.write(unsafe { load(from.wrapping_add(number * VECTOR_BYTES)) });
    }
    // SAFETY: as many parts of plain bytes, which were just written.
    unsafe { mem::transmute(parts) }
}

/// One instruction moves all bytes. It is also what the C library's `memcpy` uses for blocks of this size
/// (measured: equal from 4 KiB on, and faster than loads of eight bytes from 1 KiB on).
///
/// # Safety
/// As [`super::out`].
#[inline]
unsafe fn string_move(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: promised by the caller; the direction flag is clear by the rules of the ABI.
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

/// # Safety
/// As many bytes can be read there.
#[inline]
unsafe fn load(from: *const u8) -> __m128i {
    let part;
    // SAFETY: promised by the caller; no alignment is asked for, and every such processor can do it.
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
