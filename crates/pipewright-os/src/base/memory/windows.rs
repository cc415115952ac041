//! `memchr` of the C library. There are no hints.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use windows_sys::Win32::System::SystemInformation::GetSystemInfo;

unsafe extern "C" {
    /// Part of the C library, which std links to.
    fn memchr(bytes: *const c_void, byte: c_int, length: usize) -> *const c_void;
}

pub(super) fn use_one_heap() {}

pub(super) fn page_bytes() -> usize {
    let mut info = MaybeUninit::uninit();
    // SAFETY: it initializes the struct, and cannot fail.
    unsafe { GetSystemInfo(info.as_mut_ptr()) };
    // SAFETY: initialized by the call above.
    unsafe { info.assume_init() }.dwPageSize as usize
}

pub(super) fn advise_huge_pages(_: &mut Vec<u8>) {
    // Large pages require a privilege and an allocation of their own.
}

pub(super) fn prefault_next(_: &mut Vec<u8>) {
    // No call faults in pages that have not been touched.
}

#[inline]
pub(super) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    let start = bytes.as_ptr();
    // SAFETY: a live slice and its length.
    let found = unsafe { memchr(start.cast(), c_int::from(byte), bytes.len()) };
    (!found.is_null()).then(|| found as usize - start as usize)
}

pub(super) fn find_last(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().rposition(|other| *other == byte)
}
