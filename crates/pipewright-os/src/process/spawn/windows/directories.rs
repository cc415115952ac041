//! The directories of this machine, and the files that paths lead to.

use std::io;
use std::os::windows::io::{FromRawHandle as _, OwnedHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_DIRECTORY, INVALID_HANDLE_VALUE, MAX_PATH};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_ATTRIBUTE_DIRECTORY, FILE_EXECUTE, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE, GetFileAttributesW, GetFullPathNameW, INVALID_FILE_ATTRIBUTES, OPEN_EXISTING,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemDirectoryW, GetSystemWindowsDirectoryW,
};

use super::text::{nul_terminated, wide};
use crate::process::spawn::wide::path::{is_verbatim, without_verbatim};

/// Returns `C:\Windows\System32`.
pub(super) fn system() -> Option<Vec<u16>> {
    // SAFETY: a live buffer of that size.
    query_text(|buffer, units| unsafe { GetSystemDirectoryW(buffer, units) }).ok()
}

/// Returns `C:\Windows`.
pub(super) fn windows() -> Option<Vec<u16>> {
    // SAFETY: a live buffer of that size.
    query_text(|buffer, units| unsafe { GetSystemWindowsDirectoryW(buffer, units) }).ok()
}

/// Returns the full path as the system makes it: without `.`, `..`, and dots and spaces at its end; with a
/// drive.
fn full(path: Vec<u16>) -> io::Result<Vec<u16>> {
    let path = nul_terminated(path);
    // SAFETY: a string that ends with NUL; a live buffer of that size; no pointer to the last part.
    query_text(|buffer, units| unsafe {
        GetFullPathNameW(path.as_ptr(), units, buffer, ptr::null_mut())
    })
}

/// Returns a path that does not depend on the working directory, and that the calls accept at any length.
/// If it is short, every program understands it.
pub(super) fn absolute(path: Vec<u16>) -> io::Result<Vec<u16>> {
    if let Some(common_form) = common_form(&path) {
        return Ok(common_form);
    }
    if is_verbatim(&path) {
        return Ok(path);
    }
    let full = full(path)?;
    if fits(&full) {
        return Ok(full);
    }
    let without = |start: &str| full.strip_prefix(wide(start.as_ref()).as_slice());
    let (start, rest) = match (without(r"\\.\"), without(r"\\")) {
        (Some(device), _) => (r"\\?\", device),
        (_, Some(share)) => (r"\\?\UNC\", share),
        _ => (r"\\?\", full.as_slice()),
    };
    Ok(start.encode_utf16().chain(rest.iter().copied()).collect())
}

/// Returns the common form of a path that starts with `\\?\`, if it means the same.
fn common_form(path: &[u16]) -> Option<Vec<u16>> {
    let common_form = without_verbatim(path).filter(|common_form| fits(common_form))?;
    let is_same = full(common_form.clone()).is_ok_and(|full| full == common_form);
    is_same.then_some(common_form)
}

fn fits(path: &[u16]) -> bool {
    path.len() < MAX_PATH as usize
}

/// Returns the directory for the call, ended by NUL. Programs cannot handle a working directory that starts
/// with `\\?\`, which `canonicalize` returns.
pub(super) fn as_working_directory(dir: &Path) -> Vec<u16> {
    let dir = wide(dir.as_os_str());
    nul_terminated(common_form(&dir).unwrap_or(dir))
}

/// Returns the reason why that cannot be a working directory, if there is one.
pub(super) fn working_dir_error(dir: &Path) -> Option<io::Error> {
    match attributes(&nul_terminated(wide(dir.as_os_str()))) {
        Ok(it) if is_of_directory(it) => None,
        Ok(_) => Some(io::Error::from_raw_os_error(ERROR_DIRECTORY as i32)),
        Err(error) => Some(error),
    }
}

pub(super) fn is_directory(path_and_nul: &[u16]) -> bool {
    attributes(path_and_nul).is_ok_and(is_of_directory)
}

pub(super) fn is_of_directory(attributes: u32) -> bool {
    attributes & FILE_ATTRIBUTE_DIRECTORY != 0
}

/// Returns true if this process may execute that file.
pub(super) fn may_be_executed(path_and_nul: &[u16]) -> bool {
    let shared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: a path that ends with NUL, no attributes and no template.
    let opened = unsafe {
        let (path, none) = (path_and_nul.as_ptr(), ptr::null_mut());
        CreateFileW(path, FILE_EXECUTE, shared, ptr::null(), OPEN_EXISTING, 0, none)
    };
    if opened == INVALID_HANDLE_VALUE {
        return false;
    }
    // SAFETY: made by the call above, and owned nowhere else.
    drop(unsafe { OwnedHandle::from_raw_handle(opened) });
    true
}

pub(super) fn is_file(path_and_nul: &[u16]) -> bool {
    attributes(path_and_nul).is_ok_and(|it| !is_of_directory(it))
}

pub(super) fn attributes(path_and_nul: &[u16]) -> io::Result<u32> {
    // SAFETY: a string that ends with NUL.
    match unsafe { GetFileAttributesW(path_and_nul.as_ptr()) } {
        INVALID_FILE_ATTRIBUTES => Err(io::Error::last_os_error()),
        attributes => Ok(attributes),
    }
}

/// Returns a text from a call that takes a buffer and its size, and returns the length of the text, or, if
/// the buffer is too small, the required size.
fn query_text(call: impl Fn(*mut u16, u32) -> u32) -> io::Result<Vec<u16>> {
    let mut text = vec![0; MAX_PATH as usize];
    loop {
        let units = u32::try_from(text.len()).unwrap_or(u32::MAX);
        match call(text.as_mut_ptr(), units) {
            0 => return Err(io::Error::last_os_error()),
            length if length < units => {
                text.truncate(length as usize);
                return Ok(text);
            }
            // Between two calls a directory may have become longer.
            length => text.resize(length as usize + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_become_verbatim() {
        let long = "x".repeat(MAX_PATH as usize);
        let of = |start: &str| {
            let path = absolute(wide(format!("{start}{long}").as_ref())).unwrap();
            String::from_utf16(&path).unwrap().strip_suffix(&long).unwrap().to_owned()
        };
        assert_eq!(of(r"C:\a\"), r"\\?\C:\a\");
        assert_eq!(of(r"\\server\share\"), r"\\?\UNC\server\share\");
        assert_eq!(of(r"\\.\C:\a\"), r"\\?\C:\a\");
        assert_eq!(of(r"\\?\C:\a\"), r"\\?\C:\a\");
    }
}
