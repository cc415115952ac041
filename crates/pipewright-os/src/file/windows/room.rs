//! Room on the disk: `FileAllocationInfo`, `FileEndOfFileInfo`, `SetFileValidData`.

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_DISK_FULL, ERROR_NOT_ALL_ASSIGNED, ERROR_PRIVILEGE_NOT_HELD, ERROR_SUCCESS, GetLastError,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_MANAGE_VOLUME_NAME,
    SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ALLOCATION_INFO, FileAllocationInfo, SetFileInformationByHandle, SetFileValidData,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::{Open, len};
use crate::handle::size_of_u32;

pub(crate) fn allocate(open: &Open, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let place = i64::try_from(end).map_err(|_| io::ErrorKind::InvalidInput)?;
    if end <= len(open)? {
        // Both calls would cut the file.
        return Ok(());
    }
    let room = FILE_ALLOCATION_INFO { AllocationSize: place };
    // SAFETY: an open file, and a struct of the kind and size that are named.
    let given = unsafe {
        SetFileInformationByHandle(
            open.as_raw_handle(),
            FileAllocationInfo,
            (&raw const room).cast(),
            size_of_u32::<FILE_ALLOCATION_INFO>(),
        )
    };
    if given == 0 {
        let error = io::Error::last_os_error();
        // Where the call itself is not to be had (Wine), the next one takes the room.
        if error.raw_os_error() == Some(ERROR_DISK_FULL as i32) {
            return Err(error);
        }
    }
    open.set_len(end)?;
    if !open.expose_old_disk_contents {
        return Ok(());
    }
    allow_valid_data()?;
    // SAFETY: an open file.
    let is_valid = unsafe { SetFileValidData(open.as_raw_handle(), place) };
    if is_valid == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Turns on the right that the call takes, where this process has it.
fn allow_valid_data() -> io::Result<()> {
    let mut token = ptr::null_mut();
    // SAFETY: no arguments.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: this process, and a live place.
    let opened = unsafe { OpenProcessToken(process, TOKEN_ADJUST_PRIVILEGES, &raw mut token) };
    if opened == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, for nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut right = LUID_AND_ATTRIBUTES { Attributes: SE_PRIVILEGE_ENABLED, ..Default::default() };
    // SAFETY: this machine, a name that ends with a zero, and a live place.
    let found =
        unsafe { LookupPrivilegeValueW(ptr::null(), SE_MANAGE_VOLUME_NAME, &raw mut right.Luid) };
    if found == 0 {
        return Err(io::Error::last_os_error());
    }
    let rights = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [right] };
    // SAFETY: an open token, a list of one, and nothing that is to be told.
    let adjusted = unsafe {
        AdjustTokenPrivileges(
            token.as_raw_handle(),
            0,
            &raw const rights,
            0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    // It succeeds where the process does not have the right, and says so only here.
    // SAFETY: no arguments.
    match unsafe { GetLastError() } {
        ERROR_SUCCESS if adjusted != 0 => Ok(()),
        ERROR_NOT_ALL_ASSIGNED => Err(crate::overlapped::os_error(ERROR_PRIVILEGE_NOT_HELD)),
        error => Err(crate::overlapped::os_error(error)),
    }
}
