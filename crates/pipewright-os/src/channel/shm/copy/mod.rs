//! Copies memory that may change meanwhile.
//!
//! This is no `memcpy`: of that the compiler may assume that its source stands still. What is copied
//! of bytes that change meanwhile is some mixture of old and new ones, and nothing else comes of it.

mod words;
#[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
use words as imp;
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
use x86_64 as imp;

use super::BLOCK_BYTES;

/// Copies bytes that somebody outside of this program may be writing to.
///
/// # Safety
/// That many bytes can be read at `from` and written at `to`, and the latter are nobody else's.
#[inline]
pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: promised by the caller.
    unsafe { imp::out(from, to, count) }
}

/// A block of bytes that somebody outside of this program may be writing to, as a value: it is in
/// registers until somebody wants it elsewhere.
///
/// # Safety
/// That many bytes can be read at `from`.
#[inline]
pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
    // SAFETY: promised by the caller.
    unsafe { imp::block(from) }
}
