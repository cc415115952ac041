//! A process opened by its number, whatever process started it.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::time::Duration;

use crate::base::signal::Signal;
use crate::process::member::Member;
use crate::process::status::Ended;

/// A handle on a process that was opened by its number.
///
/// From the moment it is open, it means that process and no later one with the same number.
///
/// # Drop
/// Closes the handle and nothing else.
#[derive(Debug)]
pub struct Opened(imp::Opened);

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It has not ended.
    Running,
    /// It has ended, with this exit status.
    Ended(Ended),
    /// It has ended, and the system reports the exit status only to its parent.
    StatusUnknown,
}

impl Opened {
    /// Opens the process that has that number now, even if it has ended and is not reaped.
    ///
    /// # Platform
    /// Linux: `pidfd_open`. There is no fallback: a number that is only remembered can become another
    /// process's. macOS: a kqueue with `NOTE_EXIT`, which is bound to the process, and its start time
    /// (`proc_pidinfo`). Windows: `OpenProcess`, with the right to kill if possible.
    ///
    /// # Errors
    /// `InvalidInput`: no process can have that number. `ESRCH`: no process has it (the number of a thread
    /// does not count); `NotFound` on Windows. `Unsupported`: the machine refuses pidfds.
    /// `PermissionDenied` (Windows): this process may not even wait for it.
    pub fn open(pid: u32) -> io::Result<Opened> {
        imp::open(pid).map(Opened)
    }

    /// Returns the process, to wait for it ([`Member::to_slot`]).
    #[must_use]
    pub fn member(&self) -> &Member {
        self.0.member()
    }

    /// Returns its state. Reaps a child of this process that has ended.
    ///
    /// # Platform
    /// Linux: `poll`, then `waitid(P_PIDFD)`; if it is not a child of this process `PIDFD_GET_INFO`, which
    /// has the status from 6.15 on, once the process is reaped. macOS: the kqueue, then `wait4` for a child
    /// of this process, else `NOTE_EXITSTATUS`, which is reported for processes that this one may signal
    /// and that had not ended when they were opened. Windows: `WaitForSingleObject`, then
    /// `GetExitCodeProcess`, which works for every process.
    ///
    /// # Errors
    /// The errors of those calls.
    pub fn state(&self) -> io::Result<ProcessState> {
        self.0.state()
    }

    /// Waits until a process that has ended is reaped, if its status can become known by that; at most that
    /// long.
    ///
    /// # Platform
    /// Linux: `POLLHUP` of the pidfd (6.9 and later), if `PIDFD_GET_INFO` is known. macOS: nothing, because
    /// the reap adds nothing. Windows: nothing; the status is known from the end on.
    pub fn wait_for_reap(&self, limit: Duration) {
        self.0.wait_for_reap(limit);
    }

    /// Sends a signal. Returns false if the process has ended and been reaped; then nothing was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`, and never `kill`. macOS: as [`Member::signal`]. Windows:
    /// `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.member().signal(signal)
    }
}

/// Returns true if a process of the group lives. One that has ended and is not reaped does not count. `None`: that cannot be seen.
///
/// # Platform
/// Linux: `/proc/PID/stat` of each process, if `/proc` shows this pid namespace. macOS: `proc_listpids`. Windows: false; it has no
/// such groups.
#[must_use]
pub fn group_lives(group: u32) -> Option<bool> {
    imp::group_lives(group)
}

fn impossible_number() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no process can have that number")
}
