//! Tells which Windows this is, and which calls it has.

use std::ffi::{CStr, c_char};
use std::mem;

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;
use windows_sys::w;

use crate::base::handle::size_of_u32;

pub(crate) fn system_version() -> String {
    let size = size_of_u32::<OSVERSIONINFOW>();
    let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: size, ..Default::default() };
    // Ignored: it has no error. SAFETY: a live struct that tells its size.
    let _ = unsafe { RtlGetVersion(&raw mut version) };
    let (major, minor) = (version.dwMajorVersion, version.dwMinorVersion);
    let windows = format!("Windows {major}.{minor}.{}", version.dwBuildNumber);
    match wine_version() {
        Some(version) => format!("{windows}, Wine {version}"),
        None => windows,
    }
}

/// Whether the threads that wait for the whole process (`RegisterWaitForSingleObject`) take any number
/// of handles each. Without the kernel's wait packets (Windows 8) that is 63, and then another thread.
#[cfg(feature = "tokio")]
pub(crate) fn has_wait_packets() -> bool {
    // SAFETY: a name that ends with a zero.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    let call = c"NtAssociateWaitCompletionPacket";
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    unsafe { GetProcAddress(ntdll, call.as_ptr().cast()) }.is_some()
}

/// The version of Wine, if this is no Windows.
pub(crate) fn wine_version() -> Option<String> {
    // SAFETY: a name that ends with a zero.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    let found = unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr().cast()) }?;
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: this is its type, wherever it exists.
    let version: Version = unsafe { mem::transmute(found) };
    // SAFETY: no arguments.
    let version = unsafe { version() };
    // SAFETY: a text of Wine's own, which stays.
    Some(unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned())
}
