//! `errno`.

use super::{Cause, TOO_LONG};

pub(super) const CANCELLED: i32 = libc::ECANCELED;

pub(super) fn cause(number: i32) -> Option<Cause> {
    Some(match number {
        libc::EACCES | libc::EPERM => Cause::Denied,
        libc::ESRCH => Cause::NoSuchProcess,
        libc::ECHILD => Cause::StatusLost,
        libc::EBADF => Cause::BadHandle,
        libc::ENOEXEC => Cause::BadFormat,
        // Of another processor, or damaged (execve(2)).
        #[cfg(target_os = "macos")]
        libc::EBADEXEC | libc::EBADARCH | libc::EBADMACHO => Cause::BadFormat,
        libc::ETXTBSY => Cause::Busy,
        libc::ECANCELED => Cause::Cancelled,
        libc::EIO => Cause::Device,
        libc::E2BIG => Cause::Limit(TOO_LONG),
        libc::EAGAIN => Cause::Limit("too many processes"),
        libc::ENOMEM => Cause::Limit("out of memory"),
        libc::ENFILE => Cause::Limit("too many open files in the system"),
        libc::EMFILE => Cause::Limit("too many open files"),
        _ => return None,
    })
}
