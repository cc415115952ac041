//! `waitid(2)` as a raw system call: with the resource usage that the C library's wrapper leaves out.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::last_error;
use crate::process::status::{ExitStatus, pack};
use crate::process::usage::{Usage, from_timeval};

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
