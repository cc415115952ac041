//! `errno`.

use super::{Cause, TOO_LONG};

pub(super) fn cause(number: i32) -> Option<Cause> {
    Some(match number {
        libc::EACCES | libc::EPERM => Cause::Denied,
        libc::ESRCH => Cause::NoSuchProcess,
        libc::ECHILD => Cause::StatusLost,
        libc::EBADF => Cause::BadHandle,
        libc::ENOEXEC => Cause::BadFormat,
        libc::ETXTBSY => Cause::Busy,
        libc::E2BIG => Cause::Limit(TOO_LONG),
        libc::EAGAIN => Cause::Limit("too many processes"),
        libc::ENOMEM => Cause::Limit("out of memory"),
        libc::ENFILE => Cause::Limit("too many open files in the system"),
        libc::EMFILE => Cause::Limit("too many open files"),
        _ => return None,
    })
}
