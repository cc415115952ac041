//! A timer that kills this process, also while it is stopped.

use std::io;
use std::time::Duration;

/// A timer at whose end the kernel kills this process.
///
/// No code of this process has to run for that, so it also ends a process that is stopped (SIGSTOP) or that hangs. What
/// was started with `kill_on_parent_exit` ends with it.
///
/// # Platform
/// Linux: `timer_create(CLOCK_BOOTTIME)` with SIGKILL. The time during which the machine is suspended counts: a process
/// whose time is over when it resumes is killed at once. Elsewhere [`new`](Self::new) returns the error `Unsupported`.
///
/// # Drop
/// Removes the timer.
#[derive(Debug)]
pub struct KillTimer(imp::Timer);

impl KillTimer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// This system has no such timer, or no more of them.
    pub fn new() -> io::Result<KillTimer> {
        imp::Timer::new().map(KillTimer)
    }

    /// Sets the time that this process has left, instead of the one before. Zero counts as a nanosecond.
    ///
    /// # Errors
    /// The time is beyond the range of the system.
    ///
    /// ```
    /// # use pipewright_os::process::kill_timer::KillTimer;
    /// # use std::time::Duration;
    /// if let Ok(timer) = KillTimer::new() {
    ///     timer.set(Duration::from_secs(600))?;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set(&self, left: Duration) -> io::Result<()> {
        self.0.set(left)
    }
}

// POSIX timers with SIGKILL as their signal.
#[cfg(target_os = "linux")]
mod imp {
    use std::time::Duration;
    use std::{io, mem, ptr};

    #[derive(Debug)]
    pub(super) struct Timer(libc::timer_t);

    // SAFETY: the value is a number or an address of the C library, which any thread may use.
    unsafe impl Send for Timer {}
    // SAFETY: the calls on a timer are atomic.
    unsafe impl Sync for Timer {}

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            // SAFETY: all bytes zero is a valid event.
            let mut event: libc::sigevent = unsafe { mem::zeroed() };
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            let mut timer: libc::timer_t = ptr::null_mut();
            // SAFETY: a live event, and a place for the timer.
            let created =
                unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &raw mut event, &raw mut timer) };
            match created {
                0 => Ok(Timer(timer)),
                _ => Err(io::Error::last_os_error()),
            }
        }

        pub(super) fn set(&self, left: Duration) -> io::Result<()> {
            // Zero would stop the timer.
            let left = left.max(Duration::from_nanos(1));
            let seconds = libc::time_t::try_from(left.as_secs());
            let seconds = seconds.map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: all bytes zero is a valid time.
            let mut time: libc::itimerspec = unsafe { mem::zeroed() };
            time.it_value.tv_sec = seconds;
            time.it_value.tv_nsec = left.subsec_nanos().into();
            // SAFETY: a live timer, and a live time.
            match unsafe { libc::timer_settime(self.0, 0, &raw const time, ptr::null_mut()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    impl Drop for Timer {
        fn drop(&mut self) {
            // SAFETY: a live timer, which nobody uses any more.
            unsafe { libc::timer_delete(self.0) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::base::skipped::{Need, skipped};

        /// No test can suspend the machine, but the kernel tells the clock of a timer.
        #[test]
        fn the_time_in_which_the_machine_is_suspended_counts() {
            let timer = Timer::new().unwrap();
            timer.set(Duration::from_secs(10_000)).unwrap();
            let path = "/proc/self/timers";
            let Ok(timers) = std::fs::read_to_string(path) else {
                return skipped(Need::File(path), "the kernel lists no timers");
            };
            let clocks: Vec<_> =
                timers.lines().filter(|line| line.starts_with("ClockID")).collect();
            assert_eq!(clocks, [format!("ClockID: {}", libc::CLOCK_BOOTTIME)]);
        }
    }
}

// Systems without a timer that kills.
#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::Duration;

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn set(&self, _left: Duration) -> io::Result<()> {
            Ok(())
        }
    }
}
