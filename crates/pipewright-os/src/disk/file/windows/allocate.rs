//! Disk space for a file: `FileAllocationInfo`, `FileEndOfFileInfo`, `SetFileValidData`.

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use windows_sys::Win32::Foundation::{
    ERROR_DISK_FULL, ERROR_NOT_ALL_ASSIGNED, ERROR_PRIVILEGE_NOT_HELD, ERROR_SUCCESS, GetLastError,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_MANAGE_VOLUME_NAME,
    SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES, TOKEN_QUERY,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ALLOCATION_INFO, FileAllocationInfo, SetFileInformationByHandle, SetFileValidData,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use windows_sys::core::BOOL;

use super::{Open, len};
use crate::base::handle::size_of_u32;

pub(crate) fn allocate(open: &Open, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let place = i64::try_from(end).map_err(|_| io::ErrorKind::InvalidInput)?;
    if end <= len(open)? {
        // Both calls would truncate the file.
        return Ok(());
    }
    let room = FILE_ALLOCATION_INFO { AllocationSize: place };
    // SAFETY: an open file, and a struct of the named kind and size.
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
        // If the call itself is missing (Wine), the next one allocates the space.
        if error.raw_os_error() == Some(ERROR_DISK_FULL as i32) {
            return Err(error);
        }
    }
    open.set_len(end)?;
    if !open.expose_old_disk_contents {
        return Ok(());
    }
    let allowed = VolumePrivilege::allow()?;
    // SAFETY: an open file.
    let is_valid = unsafe { SetFileValidData(open.as_raw_handle(), place) };
    let failed = (is_valid == 0).then(io::Error::last_os_error);
    drop(allowed);
    failed.map_or(Ok(()), Err)
}

/// Opens a file with the privilege enabled, if this process has it. `SetFileValidData` refuses a file that was
/// opened without it, even if the privilege is enabled by then.
pub(super) fn open_with_privilege<T>(open: impl FnOnce() -> T) -> T {
    // Ignored: if the privilege is missing, the call reports it.
    let allowed = VolumePrivilege::allow();
    let opened = open();
    drop(allowed);
    opened
}

/// The privilege that `SetFileValidData` requires, enabled while the file is opened and during the call.
///
/// # Drop
/// Disables the privilege, unless it was enabled before: it applies to the whole process, which may run other
/// code.
struct VolumePrivilege {
    token: OwnedHandle,
    before: TOKEN_PRIVILEGES,
    /// Held by one thread at a time. Otherwise a second thread that found the privilege enabled would lose it when the
    /// first one disables it.
    _exclusive: MutexGuard<'static, ()>,
}

impl Drop for VolumePrivilege {
    fn drop(&mut self) {
        // Ignored: the same token enabled it. SAFETY: an open token, and a list of what was changed, which may
        // be empty.
        let _ = unsafe { adjust(&self.token, &self.before, ptr::null_mut()) };
    }
}

impl VolumePrivilege {
    /// Enables the privilege, if this process has it.
    fn allow() -> io::Result<VolumePrivilege> {
        static LOCK: Mutex<()> = Mutex::new(());
        let exclusive = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, right) = token_and_privilege()?;
        let rights = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [right] };
        let mut before = TOKEN_PRIVILEGES::default();
        // SAFETY: an open token, a list of one entry, and a live place for as many.
        let adjusted = unsafe { adjust(&token, &rights, &raw mut before) };
        // The call succeeds even if the process lacks the privilege, and reports that only here.
        // SAFETY: no arguments.
        match unsafe { GetLastError() } {
            ERROR_SUCCESS if adjusted != 0 => {
                Ok(VolumePrivilege { token, before, _exclusive: exclusive })
            }
            ERROR_NOT_ALL_ASSIGNED => Err(crate::base::error::os_error(ERROR_PRIVILEGE_NOT_HELD)),
            error => Err(crate::base::error::os_error(error)),
        }
    }
}

/// # Safety
/// `before` is null or has space for a list of one entry.
unsafe fn adjust(
    token: &OwnedHandle,
    rights: &TOKEN_PRIVILEGES,
    before: *mut TOKEN_PRIVILEGES,
) -> BOOL {
    let (room, mut length) = (size_of_u32::<TOKEN_PRIVILEGES>(), 0);
    // SAFETY: an open token, a live list, a live number, and the rest as promised by the caller.
    unsafe {
        AdjustTokenPrivileges(token.as_raw_handle(), 0, rights, room, before, &raw mut length)
    }
}

fn token_and_privilege() -> io::Result<(OwnedHandle, LUID_AND_ATTRIBUTES)> {
    let mut token = ptr::null_mut();
    // SAFETY: no arguments.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: this process, and a live place.
    let opened =
        unsafe { OpenProcessToken(process, TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &raw mut token) };
    if opened == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, and owned by nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut right = LUID_AND_ATTRIBUTES { Attributes: SE_PRIVILEGE_ENABLED, ..Default::default() };
    // SAFETY: this machine, a name that ends with a zero, and a live place.
    let found =
        unsafe { LookupPrivilegeValueW(ptr::null(), SE_MANAGE_VOLUME_NAME, &raw mut right.Luid) };
    if found == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((token, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the privilege is enabled. `None` if this process does not have it.
    fn is_on() -> Option<bool> {
        let (token, right) = token_and_privilege().unwrap();
        let rights = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [right] };
        let mut before = TOKEN_PRIVILEGES::default();
        // SAFETY: an open token, a list of one entry, and a live place for as many.
        let adjusted = unsafe { adjust(&token, &rights, &raw mut before) };
        // SAFETY: no arguments.
        let error = unsafe { GetLastError() };
        // SAFETY: as above, and no place for the previous state.
        let restored = unsafe { adjust(&token, &before, ptr::null_mut()) };
        assert!(adjusted != 0 && restored != 0, "{}", io::Error::last_os_error());
        // Only changed privileges are listed (Wine lists all).
        let [listed] = before.Privileges;
        let was_on = before.PrivilegeCount == 0 || listed.Attributes & SE_PRIVILEGE_ENABLED != 0;
        (error == ERROR_SUCCESS).then_some(was_on)
    }

    #[test]
    fn privilege_is_enabled_only_while_a_file_is_opened() {
        let before = is_on();
        if before.is_none() {
            return crate::base::skipped::skipped(
                crate::base::skipped::Need::Windows,
                "this user does not have the right",
            );
        }
        assert_eq!(open_with_privilege(is_on), Some(true));
        assert_eq!(is_on(), before);
    }
}
