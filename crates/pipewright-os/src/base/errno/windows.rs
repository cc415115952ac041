//! The codes of `GetLastError`.

use std::io;

use windows_sys::Win32::Foundation as win;

use super::{OsErrorKind, TOO_LONG};

pub(super) const CANCELLED: i32 = win::ERROR_OPERATION_ABORTED as i32;

pub(super) fn os_error_kind(number: i32) -> Option<OsErrorKind> {
    Some(match number as u32 {
        // ELEVATION_REQUIRED: the program requests rights that only a dialog could grant.
        win::ERROR_ACCESS_DENIED
        | win::ERROR_ELEVATION_REQUIRED
        | win::ERROR_PRIVILEGE_NOT_HELD
        | win::ERROR_ACCESS_DISABLED_BY_POLICY => OsErrorKind::Denied,
        win::ERROR_INVALID_HANDLE => OsErrorKind::BadHandle,
        win::ERROR_BAD_EXE_FORMAT
        | win::ERROR_BAD_FORMAT
        | win::ERROR_EXE_MACHINE_TYPE_MISMATCH
        | win::ERROR_EXE_MARKED_INVALID
        | win::ERROR_INVALID_EXE_SIGNATURE
        | win::ERROR_INVALID_IMAGE_HASH => OsErrorKind::BadFormat,
        // The writer has not closed the file, or a virus scanner has opened it because it is new.
        win::ERROR_SHARING_VIOLATION | win::ERROR_LOCK_VIOLATION => OsErrorKind::Busy,
        win::ERROR_FILENAME_EXCED_RANGE => OsErrorKind::Limit(TOO_LONG),
        win::ERROR_NOT_ENOUGH_MEMORY
        | win::ERROR_OUTOFMEMORY
        | win::ERROR_COMMITMENT_LIMIT
        | win::ERROR_NO_SYSTEM_RESOURCES => OsErrorKind::Limit("out of memory"),
        // A job of this process limits the number of processes, or their resources.
        win::ERROR_NOT_ENOUGH_QUOTA => OsErrorKind::Limit("a quota of this process or its job"),
        win::ERROR_OPERATION_ABORTED => OsErrorKind::Cancelled,
        win::ERROR_IO_DEVICE | win::ERROR_CRC => OsErrorKind::Device,
        win::ERROR_TOO_MANY_OPEN_FILES => OsErrorKind::Limit("too many open files"),
        _ => return None,
    })
}

pub(crate) fn os_error(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}
