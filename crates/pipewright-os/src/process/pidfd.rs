//! Pidfds: what this kernel refuses, signals through them, and waiting by them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::room::is_lack_of_room;
use super::status::{ExitStatus, pack};
use super::usage::{Usage, from_timeval};
use crate::base::generation::PerProcess;
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
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Returns true if a seccomp filter that does not know the call refuses it: ENOSYS, or EPERM as Docker's
/// did for years. EPERM is also the kernel's error for a process of another user; `kill` then returns it
/// too.
pub(crate) fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM)
}

/// Returns true if `waitid` does not take pidfds: `P_PIDFD` came with Linux 5.4, the pidfd itself with 5.3.
/// Tested once.
pub(crate) fn pidfd_wait_is_refused() -> bool {
    static REFUSED: PerProcess<bool> = PerProcess::new(|| {
        // EBADF if P_PIDFD is known, EINVAL if it is not.
        matches!(waitid(WaitTarget::NoPidfd, libc::WEXITED | libc::WNOHANG), Err(Errno::INVAL))
    });
    *REFUSED.get()
}

/// True once opening a pidfd has been refused; then no call tries again.
static OPEN_REFUSED: AtomicBool = AtomicBool::new(false);

/// Opens a pidfd of the process that has that number now: an unreaped child of this process, or a process
/// that the caller checks afterwards to be the intended one.
///
/// `None`: there is no such process. That the machine refuses pidfds is remembered: `pidfd_open` needs no right, so EPERM
/// comes from a filter.
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

/// The process to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitTarget<'a> {
    Pid(i32),
    Pidfd(BorrowedFd<'a>),
    /// An invalid pidfd: the error shows which of the arguments the kernel checks first.
    NoPidfd,
}

/// Waits with the given `WEXITED | ...` options; `None` if `WNOHANG` found it running.
///
/// For the peak memory only the kernel's figure is filled in; see [`Usage::peak_rss_bytes`].
pub(crate) fn waitid(
    target: WaitTarget<'_>,
    options: i32,
) -> rustix::io::Result<Option<(ExitStatus, Usage)>> {
    let (kind, id) = match target {
        WaitTarget::Pid(pid) => (libc::P_PID, pid),
        WaitTarget::Pidfd(fd) => (libc::P_PIDFD, fd.as_raw_fd()),
        // A number beyond every limit.
        WaitTarget::NoPidfd => (libc::P_PIDFD, i32::MAX),
    };
    // SAFETY: siginfo_t and rusage are plain integers, for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above.
    let mut usage: libc::rusage = unsafe { MaybeUninit::zeroed().assume_init() };
    loop {
        // SAFETY: both pointers are to live values of the types that the call writes.
        let result = unsafe {
            libc::syscall(libc::SYS_waitid, kind, id, &raw mut info, options, &raw mut usage)
        };
        if result == 0 {
            break;
        }
        match last_error() {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
    // SAFETY: the call succeeded, so this is a SIGCHLD record or still all zeroes.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    Ok(Some((pack(info.si_code, status), from_rusage(&usage))))
}

fn from_rusage(usage: &libc::rusage) -> Usage {
    Usage {
        user: from_timeval(usage.ru_utime),
        system: from_timeval(usage.ru_stime),
        // Linux counts in KiB (getrusage(2)).
        counted_peak_rss_bytes: u64::try_from(usage.ru_maxrss).ok().map(|kib| kib * 1024),
        peak_rss_bytes: None,
    }
}

/// Returns the peak memory, in bytes, of this process or of the program that started it, whichever is more.
pub(crate) fn own_peak_rss_bytes() -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled it in; all zeroes was a value before.
    let usage = unsafe { usage.assume_init() };
    from_rusage(&usage).counted_peak_rss_bytes
}
