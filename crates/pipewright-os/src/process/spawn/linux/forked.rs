//! Creates a child by `fork(2)`, for `pre_exec` closures: they may do things that a process which shares
//! the parent's memory must not do.
//!
//! The child reports its failure through a pipe (`error_pipe.rs`), because its memory is a copy. This calls
//! the C library's `fork`, not the system call, so that the library's own state and that of
//! `pthread_atfork` are consistent if a closure allocates.

use std::io;
use std::mem;

use super::child::{self, ChildSetup};
use crate::base::signal::AllBlocked;
use crate::process::spawn::pre_exec::{AbortOnPanic, Closure};

/// A function that forks a child, which runs the closures, and returns the child's pid.
pub(in crate::process::spawn) type Fork = fn(&ChildSetup<'_>, &mut Vec<Closure>) -> io::Result<i32>;

pub(in crate::process::spawn) const FORK: Fork = fork;

#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process in which a closure can be run"
)]
fn fork(setup: &ChildSetup<'_>, closures: &mut Vec<Closure>) -> io::Result<i32> {
    // Without this, a signal that arrived in the child before its handlers are reset would run a handler of
    // the parent.
    let _blocked = AllBlocked::new();
    // SAFETY: the child runs only the code of this module, and never returns from here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the child.
        0 => unsafe { run(setup, closures) },
        pid => Ok(pid),
    }
}

/// Runs in the child and never returns.
///
/// # Safety
/// Call this only in a forked process. `setup`'s pointers must be valid.
unsafe fn run(setup: &ChildSetup<'_>, closures: &mut [Closure]) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: as this function's.
    unsafe { child::run_forked(setup, closures) };
    mem::forget(no_unwinding);
    // SAFETY: ends this process without touching the parent's resources (no atexit, no flush).
    unsafe { libc::_exit(127) }
}
