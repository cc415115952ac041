//! The user of this process.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt as _;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::{GetTokenInformation, TOKEN_QUERY, TOKEN_USER, TokenUser};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// Returns the user's SID as text: `S-1-5-21-...`. Empty if it is unknown.
pub(in super::super) fn user() -> String {
    identifier().unwrap_or_default()
}

fn identifier() -> io::Result<String> {
    let mut token = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: this process, and a live place.
    let opened = unsafe { OpenProcessToken(own, TOKEN_QUERY, &raw mut token) };
    if opened == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, and owned by nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Aligned like the struct, with space for the longest SID after it.
    let mut buffer = [0_u64; 32];
    let (to, room, mut length) = (buffer.as_mut_ptr(), size_of_val(&buffer) as u32, 0);
    // SAFETY: an open token, a live buffer of that size and a live number.
    let known = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, to.cast(), room, &raw mut length)
    };
    if known == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call above.
    let user = unsafe { buffer.as_ptr().cast::<TOKEN_USER>().read() };
    let mut text = ptr::null_mut();
    // SAFETY: a SID in the live buffer, and a live place.
    if unsafe { ConvertSidToStringSidW(user.User.Sid, &raw mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a text that ends with a zero; nothing after that is read.
    let letter = |at: usize| unsafe { text.wrapping_add(at).read() };
    let length = (0..).take_while(|at| letter(*at) != 0).count();
    // SAFETY: as many as were counted.
    let wide = unsafe { std::slice::from_raw_parts(text, length) };
    let identifier = OsString::from_wide(wide).to_string_lossy().into_owned();
    // SAFETY: allocated by the call above, for the caller to free.
    unsafe { LocalFree(text.cast()) };
    Ok(identifier)
}
