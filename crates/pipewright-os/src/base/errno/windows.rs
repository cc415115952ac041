//! The codes of `GetLastError`.

use std::io;

use windows_sys::Win32::Foundation as win;

use super::{Cause, TOO_LONG};

pub(super) const CANCELLED: i32 = win::ERROR_OPERATION_ABORTED as i32;

pub(super) fn cause(number: i32) -> Option<Cause> {
    Some(match number as u32 {
        // The second: it asks for rights that only a dialog could give it.
        win::ERROR_ACCESS_DENIED
        | win::ERROR_ELEVATION_REQUIRED
        | win::ERROR_PRIVILEGE_NOT_HELD
        | win::ERROR_ACCESS_DISABLED_BY_POLICY => Cause::Denied,
        win::ERROR_INVALID_HANDLE => Cause::BadHandle,
        win::ERROR_BAD_EXE_FORMAT
        | win::ERROR_BAD_FORMAT
        | win::ERROR_EXE_MACHINE_TYPE_MISMATCH
        | win::ERROR_EXE_MARKED_INVALID
        | win::ERROR_INVALID_EXE_SIGNATURE
        | win::ERROR_INVALID_IMAGE_HASH => Cause::BadFormat,
        // Its writer has not closed it, or a virus scanner has opened it because it is new.
        win::ERROR_SHARING_VIOLATION | win::ERROR_LOCK_VIOLATION => Cause::Busy,
        win::ERROR_FILENAME_EXCED_RANGE => Cause::Limit(TOO_LONG),
        win::ERROR_NOT_ENOUGH_MEMORY
        | win::ERROR_OUTOFMEMORY
        | win::ERROR_COMMITMENT_LIMIT
        | win::ERROR_NO_SYSTEM_RESOURCES => Cause::Limit("out of memory"),
        // A job that this process is in has a limit on processes, or on what they take.
        win::ERROR_NOT_ENOUGH_QUOTA => Cause::Limit("a quota of this process or its job"),
        win::ERROR_OPERATION_ABORTED => Cause::Cancelled,
        win::ERROR_IO_DEVICE | win::ERROR_CRC => Cause::Device,
        win::ERROR_TOO_MANY_OPEN_FILES => Cause::Limit("too many open files"),
        _ => return None,
    })
}

/// Returns the error of that number.
pub(crate) fn os_error(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}
