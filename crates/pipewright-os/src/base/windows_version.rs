//! The version of Windows, or of Wine.

use std::ffi::{CStr, c_char};
use std::mem;

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;
use windows_sys::w;

use crate::base::handle::size_of_u32;

/// Returns the name and the version of the system.
pub(crate) fn system_version() -> String {
    let size = size_of_u32::<OSVERSIONINFOW>();
    let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: size, ..Default::default() };
    // Ignored: it cannot fail. SAFETY: a live struct that states its size.
    let _ = unsafe { RtlGetVersion(&raw mut version) };
    let (major, minor) = (version.dwMajorVersion, version.dwMinorVersion);
    let windows = format!("Windows {major}.{minor}.{}", version.dwBuildNumber);
    match wine_version() {
        Some(version) => format!("{windows}, Wine {version}"),
        None => windows,
    }
}

/// Returns the version of Wine, or `None` on Windows itself.
pub(crate) fn wine_version() -> Option<String> {
    // SAFETY: a name that ends with a zero.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    let found = unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr().cast()) }?;
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the type of this function, wherever it exists.
    let version: Version = unsafe { mem::transmute(found) };
    // SAFETY: no arguments.
    let version = unsafe { version() };
    // SAFETY: a static string of Wine's.
    Some(unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned())
}
