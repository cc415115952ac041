//! `memchr` of the C library; no hints.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use windows_sys::Win32::System::SystemInformation::GetSystemInfo;

unsafe extern "C" {
    /// std is linked with the library that has it.
    fn memchr(bytes: *const c_void, byte: c_int, length: usize) -> *const c_void;
}

pub(super) fn share_one_heap() {}

pub(super) fn page_bytes() -> usize {
    let mut info = MaybeUninit::uninit();
    // SAFETY: it fills in what it is given, and has no error.
    unsafe { GetSystemInfo(info.as_mut_ptr()) };
    // SAFETY: filled in by the call above.
    unsafe { info.assume_init() }.dwPageSize as usize
}

pub(super) fn expect_filling(_: &mut Vec<u8>) {
    // Large pages take a privilege, and an allocation of their own.
}

pub(super) fn prepare_next(_: &mut Vec<u8>) {
    // No call makes pages real that nobody has touched.
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
