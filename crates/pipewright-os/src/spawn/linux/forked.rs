//! Makes a child by `fork(2)`: for closures of `pre_exec`, which may do what a process that shares our
//! memory must not.
//!
//! The child writes its failure to a pipe that exec closes, because its memory is a copy. The
//! C library's `fork` is called, not the system call, so that its own state and that of
//! `pthread_atfork` is in order where a closure allocates after all.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

use super::child::{self, Job};
use crate::signal::AllBlocked;
use crate::spawn::pre_exec::{AbortOnPanic, Closure};

/// Forks a child that runs the closures. Returns its pid, and its failure in the job.
pub(in crate::spawn) type Fork = fn(&Job<'_>, &mut Vec<Closure>) -> io::Result<i32>;

pub(in crate::spawn) const FORK: Fork = fork;

/// The failed step and the error number, in the bytes of this machine.
const REPORT_BYTES: usize = 8;

#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process in which a closure can be run"
)]
fn fork(job: &Job<'_>, closures: &mut Vec<Closure>) -> io::Result<i32> {
    let (read, made) = crate::pipe::ends()?;
    let write = out_of_the_way(&made, job)?;
    drop(made);
    let pid = {
        // A signal that arrived in the child before its handlers are reset would run one of ours.
        let _blocked = AllBlocked::new();
        // SAFETY: the child does what this module says, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: this is the child.
            0 => unsafe { run(job, closures, write.as_raw_fd()) },
            pid => pid,
        }
    };
    // The child's copy, which exec closes, is the last.
    drop(write);
    let mut report = [0; REPORT_BYTES];
    // An end before all of it is an exec, or a child that was killed before; its status tells.
    if File::from(read).read_exact(&mut report).is_ok() {
        let [a, b, c, d, e, f, g, h] = report;
        job.failed_step.store(u32::from_ne_bytes([a, b, c, d]), Relaxed);
        job.errno.store(i32::from_ne_bytes([e, f, g, h]), Relaxed);
    }
    Ok(pid)
}

/// Runs in the child and never comes back.
///
/// # Safety
/// Only in a forked process; `job`'s pointers must be good.
unsafe fn run(job: &Job<'_>, closures: &mut [Closure], report_to: RawFd) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: as this function's.
    unsafe { child::run_forked(job, closures) };
    mem::forget(no_unwinding);
    let [a, b, c, d] = job.failed_step.load(Relaxed).to_ne_bytes();
    let [e, f, g, h] = job.errno.load(Relaxed).to_ne_bytes();
    let report: [u8; REPORT_BYTES] = [a, b, c, d, e, f, g, h];
    // Ignored: who does not learn the reason learns the exit code. At most PIPE_BUF: all or nothing.
    // SAFETY: an open pipe, and so many bytes.
    unsafe { libc::write(report_to, report.as_ptr().cast(), REPORT_BYTES) };
    // SAFETY: ends this process without touching what belongs to the parent (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// A copy whose number the child will give to nothing else.
fn out_of_the_way(fd: &OwnedFd, job: &Job<'_>) -> io::Result<OwnedFd> {
    let mut in_between = Vec::new();
    loop {
        // SAFETY: numbers.
        let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, for nobody else.
        let owned = unsafe { OwnedFd::from_raw_fd(copy) };
        if job.moves.iter().all(|place| place.to != copy) {
            return Ok(owned);
        }
        // Kept until the end, so that its number is not offered again.
        in_between.push(owned);
    }
}
