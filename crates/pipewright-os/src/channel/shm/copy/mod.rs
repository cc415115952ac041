//! Copies memory that may change during the copy.
//!
//! `memcpy` is unsuitable: the compiler may assume that its source does not change. A copy of changing bytes is
//! some mixture of old and new bytes, and has no other effect.

mod words;
#[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
use words as imp;
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
use x86_64 as imp;

use super::BLOCK_BYTES;

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
