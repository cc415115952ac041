//! `wait4(2)`: reaps a child and returns its usage.

use std::io;

use crate::process::status::ExitStatus;
use crate::process::usage::{Usage, from_timeval};

/// Reaps a child; `None` if `WNOHANG` found it running.
pub(crate) fn wait4(pid: i32, options: i32) -> io::Result<Option<(ExitStatus, Usage)>> {
    let mut status = 0;
    // SAFETY: a rusage is plain integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the types that the call writes.
        match unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some((ExitStatus::from_raw(status), from_rusage(&usage)))),
        }
    }
}

fn from_rusage(usage: &libc::rusage) -> Usage {
    // macOS counts in bytes (getrusage(2)), and a new program begins a new task: its parent's memory is not
    // in the figure.
    let peak = u64::try_from(usage.ru_maxrss).ok();
    Usage {
        user: from_timeval(usage.ru_utime),
        system: from_timeval(usage.ru_stime),
        peak_rss_bytes: peak,
        counted_peak_rss_bytes: peak,
    }
}
