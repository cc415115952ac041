//! Exit statuses.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::KILLED;

use std::fmt;

use crate::base::signal::Signal;
use crate::process::usage::Usage;

/// The exit status of a child, with the names and rules of [`std::process::ExitStatus`].
///
/// It converts from and to std's, and has the methods of std's Unix extension trait itself.
///
/// ```
/// # use pipewright_os::process::status::ExitStatus;
/// let status = ExitStatus::from_raw(0);
/// assert!(status.success());
/// assert_eq!(std::process::ExitStatus::from(status).code(), Some(0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ExitStatus(u32);

/// An exit status other than success, as an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExitStatusError(ExitStatus);

/// The exit status of a child, and its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// The usage; `None` if other code reaped the child and only the status is known.
    pub usage: Option<Usage>,
}

impl ExitStatus {
    /// Returns true if the child exited on its own with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.0 == 0
    }

    /// Returns the exit code; `None` if a signal ended the child (Unix).
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        imp::code(self.0)
    }

    /// Returns the signal that ended the child; always `None` on Windows.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        imp::signal(self.0)
    }

    /// Returns [`signal`](Self::signal) as a [`Signal`], which prints its name.
    #[must_use]
    pub fn terminating_signal(&self) -> Option<Signal> {
        self.signal().and_then(Signal::from_number)
    }

    /// Returns true if the child was killed by force: by SIGKILL (Unix), or with the exit code 1 (Windows;
    /// no more can be known there, and the child may have chosen that code itself).
    #[must_use]
    pub fn was_killed(&self) -> bool {
        imp::was_killed(self.0)
    }

    /// Returns true if the child left a core dump.
    #[must_use]
    pub fn core_dumped(&self) -> bool {
        imp::core_dumped(self.0)
    }

    /// Returns `Ok` for success, otherwise an error that prints the status.
    ///
    /// # Errors
    /// The status is not success.
    pub fn exit_ok(&self) -> Result<(), ExitStatusError> {
        if self.success() { Ok(()) } else { Err(ExitStatusError(*self)) }
    }

    /// Returns the platform's own value: the wait status of `wait(2)` on Unix, the exit code on Windows.
    #[must_use]
    pub fn raw(&self) -> u32 {
        self.0
    }

    /// Returns [`raw`](Self::raw), with the name and type of std's Unix extension trait.
    #[must_use]
    pub fn into_raw(self) -> i32 {
        self.0 as i32
    }

    /// Creates a status from a wait status (Unix) or an exit code (Windows).
    #[must_use]
    pub fn from_raw(raw: i32) -> ExitStatus {
        ExitStatus(raw as u32)
    }
}

impl ExitStatusError {
    /// Returns the status.
    #[must_use]
    pub fn into_status(self) -> ExitStatus {
        self.0
    }

    /// Returns the exit code, if the child exited on its own.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.0.code()
    }
}

impl From<std::process::ExitStatus> for ExitStatus {
    fn from(status: std::process::ExitStatus) -> Self {
        ExitStatus(imp::from_std(status))
    }
}

impl From<ExitStatus> for std::process::ExitStatus {
    fn from(status: ExitStatus) -> Self {
        imp::to_std(status.0)
    }
}

impl fmt::Debug for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExitStatus({self})")
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        imp::show(self, f)
    }
}

impl fmt::Display for ExitStatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process ended without success: {}", self.0)
    }
}

impl std::error::Error for ExitStatusError {}

#[cfg(target_os = "linux")]
pub(crate) use unix::pack;
