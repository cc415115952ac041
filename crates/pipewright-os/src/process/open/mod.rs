//! A process that is named by its number, whoever started it.

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
/// From the moment it is open, it means that process and no later one of the same number.
///
/// # Drop
/// Gives up the handle and nothing else.
#[derive(Debug)]
pub struct Opened(imp::Opened);

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It has not ended.
    Runs,
    /// It has ended, and this is how.
    Ended(Ended),
    /// It has ended, and the system does not tell how to somebody who is not its parent.
    Untold,
}

impl Opened {
    /// Opens the process that has that number now. One that has ended and is not reaped counts.
    ///
    /// # Platform
    /// Linux: `pidfd_open`. There is no second-best way: a number that is only remembered can
    /// become another process's. macOS: a kqueue with `NOTE_EXIT`, which is bound to the process,
    /// and the time of its start (`proc_pidinfo`). Windows: `OpenProcess`, with the right to kill
    /// where it is to be had.
    ///
    /// # Errors
    /// `InvalidInput`: no process can have that number. `ESRCH`: none has it (that of a thread is
    /// none); `NotFound` on Windows. `Unsupported`: the machine refuses pidfds.
    /// `PermissionDenied` (Windows): not even to be waited for.
    pub fn open(pid: u32) -> io::Result<Opened> {
        imp::open(pid).map(Opened)
    }

    /// Returns the process, as something to wait for ([`Member::to_slot`]).
    #[must_use]
    pub fn member(&self) -> &Member {
        self.0.member()
    }

    /// What has become of it. A child of ours that has ended is reaped.
    ///
    /// # Platform
    /// Linux: `poll`, then `waitid(P_PIDFD)`, and where that says that it is no child of ours
    /// `PIDFD_GET_INFO`, which tells from 6.15 on, once the process is reaped. macOS: the kqueue,
    /// then `wait4` for a child of ours, else `NOTE_EXITSTATUS`, which is told of processes that we
    /// may signal and that had not ended when they were opened. Windows: `WaitForSingleObject`,
    /// then `GetExitCodeProcess`, which tells whoever asks.
    ///
    /// # Errors
    /// What the calls themselves report.
    pub fn fate(&self) -> io::Result<Fate> {
        self.0.fate()
    }

    /// Waits until a process that has ended is reaped, if that can make its status known; at most
    /// that long.
    ///
    /// # Platform
    /// Linux: `POLLHUP` of the pidfd (6.9 and later), where `PIDFD_GET_INFO` is known. macOS:
    /// nothing, because the reap makes nothing known. Windows: nothing; the status is known from
    /// the end on.
    pub fn wait_for_reap(&self, limit: Duration) {
        self.0.wait_for_reap(limit);
    }

    /// Sends a signal. `false`: the process has ended and been reaped, and nobody was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`, and never `kill`. macOS: as [`Member::signal`]. Windows:
    /// `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but
    /// `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.member().signal(signal)
    }
}
