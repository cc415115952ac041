//! Queries to the kernel about the open file behind a handle.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, BorrowedHandle};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_SYNCHRONOUS_IO_ALERT, FILE_SYNCHRONOUS_IO_NONALERT, FileModeInformation,
    NtQueryInformationFile,
};
use windows_sys::Win32::Foundation::RtlNtStatusToDosError;
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, GetFileType};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

use super::size_of_u32;
use crate::base::errno::os_error;

/// Returns true if the handle is overlapped and several calls on it can be left to the kernel in
/// sequence.
///
/// False for every file on a disk, whatever its mode: an overlapped file has no current offset, so
/// each call would begin at the start again. The kernel refuses calls that state no offset.
pub(crate) fn is_overlapped(handle: BorrowedHandle<'_>) -> bool {
    let mut mode = 0_u32;
    // SAFETY: the class returns an integer of that type.
    let queried = unsafe { query(handle, FileModeInformation, &raw mut mode) };
    let waits = mode & (FILE_SYNCHRONOUS_IO_ALERT | FILE_SYNCHRONOUS_IO_NONALERT) != 0;
    // SAFETY: an open handle.
    queried.is_ok() && !waits && unsafe { GetFileType(handle.as_raw_handle()) } != FILE_TYPE_DISK
}

/// Queries the kernel about an open file.
///
/// # Safety
/// The class returns a value of type `T`.
pub(crate) unsafe fn query<T>(
    handle: BorrowedHandle<'_>,
    class: i32,
    to: *mut T,
) -> io::Result<()> {
    let mut block = IO_STATUS_BLOCK::default();
    let (to, size) = (to.cast::<c_void>(), size_of_u32::<T>());
    // SAFETY: an open handle and a live block; the caller promises the rest.
    let status =
        unsafe { NtQueryInformationFile(handle.as_raw_handle(), &raw mut block, to, size, class) };
    if status >= 0 {
        return Ok(());
    }
    // SAFETY: an integer argument.
    Err(os_error(unsafe { RtlNtStatusToDosError(status) }))
}
