//! Values of `sysctlbyname`.

use std::ffi::CStr;
use std::ptr;

/// Returns the bytes of a value, if it fits.
fn bytes<const ROOM: usize>(name: &CStr) -> Option<([u8; ROOM], usize)> {
    let mut value = [0_u8; ROOM];
    let mut length = ROOM;
    let place = value.as_mut_ptr().cast();
    // SAFETY: a name that ends with a zero, a live buffer and its size, and no new value.
    let result =
        unsafe { libc::sysctlbyname(name.as_ptr(), place, &raw mut length, ptr::null_mut(), 0) };
    (result == 0).then_some((value, length))
}

/// Returns a value that is text.
pub(super) fn text(name: &CStr) -> Option<String> {
    let (value, length) = bytes::<256>(name)?;
    let text = String::from_utf8_lossy(value.get(..length)?);
    Some(text.trim_end_matches('\0').to_owned())
}

/// Returns a value that is an unsigned number.
pub(super) fn number(name: &CStr) -> Option<u64> {
    match bytes::<8>(name)? {
        (value, 8) => Some(u64::from_ne_bytes(value)),
        ([a, b, c, d, ..], 4) => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
        _ => None,
    }
}
