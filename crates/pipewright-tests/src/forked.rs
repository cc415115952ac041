//! A fork of this process, for what a copy of a value must not do to the parent.

/// Runs it in a fork of this process, and waits for the end of the fork. Returns true if it did not panic.
///
/// # Panics
/// No process can be made.
#[expect(clippy::disallowed_methods, reason = "forks are the point")]
pub fn in_a_fork(work: impl FnOnce()) -> bool {
    // SAFETY: the fork only drops copies and starts processes, and ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a number. The default ends a fork that hangs.
            unsafe { libc::alarm(crate::pace::seconds(30).as_secs() as u32) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: a number.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        fork => {
            let mut status = 0;
            // SAFETY: a child of this process, and a live integer.
            assert_eq!(unsafe { libc::waitpid(fork, &raw mut status, 0) }, fork);
            status == 0
        }
    }
}
