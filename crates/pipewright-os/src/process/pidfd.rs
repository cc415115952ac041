//! Pidfds: what this kernel refuses, and signals through them. Waiting by them is in `child/linux.rs`.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::status::ExitStatus;
use crate::base::error::is_lack_of_room;
use crate::base::test_hooks::{Forced, is_forced};

/// The exit status that the kernel keeps of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SavedStatus {
    Known(ExitStatus),
    /// It is not reaped, or the kernel is older than 6.15.
    NotReaped,
    /// The call does not exist here, or nothing is left to query.
    Unavailable,
}

/// Queries the exit status of a reaped process, which Linux 6.15 keeps as long as a pidfd is open.
pub(crate) fn saved_status(pidfd: BorrowedFd<'_>) -> SavedStatus {
    // SAFETY: pidfd_info is plain integers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: the request names the size of the struct that is passed.
    match unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) } {
        0 if info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0 => {
            SavedStatus::Known(ExitStatus::from_raw(info.exit_code))
        }
        0 => SavedStatus::NotReaped,
        _ => SavedStatus::Unavailable,
    }
}

/// Sends a signal through a pidfd. Returns false if the process has ended and been reaped.
///
/// The error is a plain number, so that a caller that drops it drops nothing.
pub(crate) fn send(pidfd: BorrowedFd<'_>, signal: i32, flags: u32) -> rustix::io::Result<bool> {
    // SAFETY: an open descriptor, numbers, and no siginfo.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            flags,
        )
    };
    if result == 0 { Ok(true) } else { last_signal_result() }
}

/// Turns the last error, of a signal that was not sent, into the result of [`send`].
pub(crate) fn last_signal_result() -> rustix::io::Result<bool> {
    match last_error() {
        Errno::SRCH => Ok(false),
        error => Err(error),
    }
}

/// Returns the last error of the C library.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns true if a seccomp filter that does not know the call refuses it: ENOSYS, or EPERM as Docker's
/// did for years. EPERM is also the kernel's error for a process of another user; `kill` then returns it
/// too.
pub(crate) fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// True once opening a pidfd has been refused; then no call tries again.
static OPEN_REFUSED: AtomicBool = AtomicBool::new(false);

/// Opens a pidfd of the process that has that number now: an unreaped child of this process, or a process
/// that the caller checks afterwards to be the intended one.
///
/// `None`: there is no such process. That the machine refuses pidfds is remembered: `pidfd_open` needs no right, so
/// EPERM comes from a filter.
pub(crate) fn open_pidfd(pid: i32) -> rustix::io::Result<Option<OwnedFd>> {
    if pidfds_are_refused() {
        return Err(Errno::NOSYS);
    }
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return Ok(None) };
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => {
            if is_refused(error) {
                OPEN_REFUSED.store(true, Ordering::Relaxed);
            }
            Err(error)
        }
    }
}

/// Returns true if processes can be opened and signalled by pidfds.
pub(crate) fn can_signal() -> rustix::io::Result<bool> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    match open_pidfd(own) {
        Ok(own) => Ok(own.is_some_and(|own| matches!(send(own.as_fd(), 0, 0), Ok(true)))),
        Err(error) if is_lack_of_room(error) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Returns true if this build or this machine has no pidfds.
pub(crate) fn pidfds_are_refused() -> bool {
    is_forced(Forced::NoPidfd) || OPEN_REFUSED.load(Ordering::Relaxed)
}
