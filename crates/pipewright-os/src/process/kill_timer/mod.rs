//! A timer that kills this process, also while it is stopped.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
use other as imp;

use std::io;
use std::time::Duration;

/// A timer at whose end the kernel kills this process.
///
/// No code of this process has to run for that, so it also ends a process that is stopped (SIGSTOP) or that hangs. What was
/// started with `kill_on_parent_exit` ends with it.
///
/// # Platform
/// Linux: `timer_create(CLOCK_BOOTTIME)` with SIGKILL. The time during which the machine is suspended counts: a process whose
/// time is over when it resumes is killed at once. Elsewhere
/// [`new`](Self::new) returns the error `Unsupported`.
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
