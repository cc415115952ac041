//! Makes a child by `fork(2)`: for closures of `pre_exec`, which may do what a process that shares our
//! memory must not.
//!
//! The child reports its failure through a pipe (`error_pipe.rs`), because its memory is a copy. The
//! C library's `fork` is called, not the system call, so that its own state and that of
//! `pthread_atfork` is in order where a closure allocates after all.

use std::io;
use std::mem;

use super::child::{self, Job};
use crate::base::signal::AllBlocked;
use crate::process::spawn::pre_exec::{AbortOnPanic, Closure};

/// Forks a child that runs the closures. Returns its pid.
pub(in crate::process::spawn) type Fork = fn(&Job<'_>, &mut Vec<Closure>) -> io::Result<i32>;

pub(in crate::process::spawn) const FORK: Fork = fork;

#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process in which a closure can be run"
)]
fn fork(job: &Job<'_>, closures: &mut Vec<Closure>) -> io::Result<i32> {
    // A signal that arrived in the child before its handlers are reset would run one of ours.
    let _blocked = AllBlocked::new();
    // SAFETY: the child does what this module says, and never returns from here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the child.
        0 => unsafe { run(job, closures) },
        pid => Ok(pid),
    }
}

/// Runs in the child and never comes back.
///
/// # Safety
/// Only in a forked process; `job`'s pointers must be good.
unsafe fn run(job: &Job<'_>, closures: &mut [Closure]) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: as this function's.
    unsafe { child::run_forked(job, closures) };
    mem::forget(no_unwinding);
    // SAFETY: ends this process without touching what belongs to the parent (no atexit, no flush).
    unsafe { libc::_exit(127) }
}
