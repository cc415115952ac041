//! The values of `errno`.

use super::{OsErrorKind, TOO_LONG};

pub(super) const CANCELLED: i32 = libc::ECANCELED;

pub(super) fn os_error_kind(number: i32) -> Option<OsErrorKind> {
    Some(match number {
        libc::EACCES | libc::EPERM => OsErrorKind::Denied,
        libc::ESRCH => OsErrorKind::NoSuchProcess,
        libc::ECHILD => OsErrorKind::StatusLost,
        libc::EBADF => OsErrorKind::BadHandle,
        libc::ENOEXEC => OsErrorKind::BadFormat,
        // For another processor, or damaged (execve(2)).
        #[cfg(target_os = "macos")]
        libc::EBADEXEC | libc::EBADARCH | libc::EBADMACHO => OsErrorKind::BadFormat,
        libc::ETXTBSY => OsErrorKind::Busy,
        libc::ECANCELED => OsErrorKind::Cancelled,
        libc::EIO => OsErrorKind::Device,
        libc::E2BIG => OsErrorKind::Limit(TOO_LONG),
        libc::EAGAIN => OsErrorKind::Limit("too many processes"),
        libc::ENOMEM => OsErrorKind::Limit("out of memory"),
        libc::ENFILE => OsErrorKind::Limit("too many open files in the system"),
        libc::EMFILE => OsErrorKind::Limit("too many open files"),
        _ => return None,
    })
}
