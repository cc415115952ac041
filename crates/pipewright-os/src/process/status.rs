//! Exit statuses, and on macOS the call that reaps a child.

use std::fmt;

use crate::base::signal::Signal;
use crate::process::usage::Usage;

#[cfg(windows)]
pub(crate) use imp::KILLED;
#[cfg(target_os = "macos")]
pub(crate) use wait4::wait4;

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

/// Wait statuses, as `wait(2)` packs them.
#[cfg(unix)]
mod imp {
    use std::fmt;
    use std::os::unix::process::ExitStatusExt as _;

    use super::ExitStatus;
    use crate::base::signal::Signal;

    pub(super) fn code(raw: u32) -> Option<i32> {
        let raw = raw as i32;
        libc::WIFEXITED(raw).then(|| libc::WEXITSTATUS(raw))
    }

    pub(super) fn signal(raw: u32) -> Option<i32> {
        let raw = raw as i32;
        libc::WIFSIGNALED(raw).then(|| libc::WTERMSIG(raw))
    }

    pub(super) fn was_killed(raw: u32) -> bool {
        signal(raw) == Some(libc::SIGKILL)
    }

    pub(super) fn core_dumped(raw: u32) -> bool {
        let raw = raw as i32;
        libc::WIFSIGNALED(raw) && libc::WCOREDUMP(raw)
    }

    pub(super) fn from_std(status: std::process::ExitStatus) -> u32 {
        status.into_raw() as u32
    }

    pub(super) fn to_std(raw: u32) -> std::process::ExitStatus {
        std::process::ExitStatus::from_raw(raw as i32)
    }

    /// Prints the words of std, with the signal's name after its number.
    pub(super) fn show(status: &ExitStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(code) = status.code() {
            return write!(f, "exit status: {code}");
        }
        if let Some(number) = status.signal() {
            write!(f, "signal: {number}")?;
            if let Some(name) = Signal::from_number(number).and_then(Signal::name) {
                write!(f, " ({name})")?;
            }
            return f.write_str(if status.core_dumped() { " (core dumped)" } else { "" });
        }
        write!(f, "wait status: {:#x}", status.raw())
    }
}

/// Exit codes: unsigned numbers of 32 bits.
#[cfg(windows)]
mod imp {
    use std::fmt;
    use std::os::windows::process::ExitStatusExt as _;

    use super::ExitStatus;

    /// The exit code of a killed process, as in std.
    pub(crate) const KILLED: u32 = 1;

    /// The lowest code that is a status of the kernel (`NTSTATUS`), which people know in hexadecimal.
    const HIGH_BIT: u32 = 0x8000_0000;

    pub(super) fn code(raw: u32) -> Option<i32> {
        Some(raw as i32)
    }

    pub(super) fn signal(_: u32) -> Option<i32> {
        None
    }

    pub(super) fn was_killed(raw: u32) -> bool {
        raw == KILLED
    }

    pub(super) fn core_dumped(_: u32) -> bool {
        false
    }

    pub(super) fn from_std(status: std::process::ExitStatus) -> u32 {
        // There is always a code on this platform.
        status.code().unwrap_or_default() as u32
    }

    pub(super) fn to_std(raw: u32) -> std::process::ExitStatus {
        std::process::ExitStatus::from_raw(raw)
    }

    /// Prints the words of std.
    pub(super) fn show(status: &ExitStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status.raw() {
            code if code & HIGH_BIT != 0 => write!(f, "exit code: {code:#x}"),
            code => write!(f, "exit code: {code}"),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::ExitStatus;

        #[test]
        fn status_prints_and_converts_like_std() {
            for (raw, words) in [
                (0, "exit code: 0"),
                (1, "exit code: 1"),
                (259, "exit code: 259"),
                (0xC000_0005_u32 as i32, "exit code: 0xc0000005"),
                (-1, "exit code: 0xffffffff"),
            ] {
                let status = ExitStatus::from_raw(raw);
                let std = std::process::ExitStatus::from(status);
                assert_eq!(
                    (status.to_string(), std.to_string()),
                    (words.to_owned(), words.to_owned())
                );
                assert_eq!((status.code(), std.code()), (Some(raw), Some(raw)));
                assert_eq!(ExitStatus::from(std), status);
                assert_eq!((status.signal(), status.core_dumped()), (None, false));
                assert_eq!(status.success(), raw == 0);
            }
        }
    }
}

// `wait4(2)`: reaps a child and returns its usage.
#[cfg(target_os = "macos")]
mod wait4 {
    use std::io;

    use super::ExitStatus;
    use crate::process::usage::{Usage, from_timeval, switches_of};

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
            switches: switches_of(usage),
            peak_rss_bytes: peak,
            counted_peak_rss_bytes: peak,
        }
    }
}
