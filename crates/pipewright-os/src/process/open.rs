//! A process opened by its number, whatever process started it, and the start time that tells it from a later one.

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

/// Returns true if a process of the group lives. One that has ended and is not reaped does not count. `None`: that
/// cannot be seen.
///
/// # Platform
/// Linux: `/proc/PID/stat` of each process, if `/proc` shows this pid namespace. macOS: `proc_listpids`. Windows:
/// false; it has no such groups.
#[must_use]
pub fn group_lives(group: u32) -> Option<bool> {
    imp::group_lives(group)
}

fn impossible_number() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no process can have that number")
}

/// Returns the start time of the process that has that number now. `None` if no process has it, if it has ended, or if
/// the time is unknown.
///
/// The unit depends on the system: a start time can only be compared with others of the same system. On Linux they
/// count from the boot, so they can only be compared with others of the same boot
/// ([`boot_id`](../../host/host_info/fn.boot_id.html)).
///
/// # Platform
/// Linux: `/proc/PID/stat`, if `/proc` shows this pid namespace. macOS: `proc_pidinfo`, which an ordinary user may call
/// for its own processes only. Windows: `GetProcessTimes`.
///
/// ```
/// # use pipewright_os::process::open::start_time;
/// let own = std::process::id();
/// assert_eq!(start_time(own), start_time(own));
/// ```
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    imp::start_time(pid)
}

// A process that was opened by its number is held by a pidfd.
#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags};

    use super::{ProcessState, impossible_number};
    use crate::base::poll::poll_again;
    use crate::process::child::linux::{WaitTarget, waitid};
    use crate::process::member::Member;
    use crate::process::pidfd::{SavedStatus, pidfds_are_refused, saved_status};
    use crate::process::procfs::{Stat, proc_is_ours};
    use crate::process::status::Ended;

    pub(super) use crate::process::procfs::group_lives;

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        if !proc_is_ours().ok()? {
            return None;
        }
        Stat::of(pid).ok()?.filter(|stat| !stat.has_ended()).map(|stat| stat.start)
    }

    #[derive(Debug)]
    pub(super) struct Opened {
        member: Member,
        ended: Mutex<Option<Ended>>,
    }

    pub(super) fn open(pid: u32) -> io::Result<Opened> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(number) = number else {
            return Err(impossible_number());
        };
        if pidfds_are_refused() {
            return Err(refused());
        }
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Opened { member: Member::new(pid, pidfd), ended: Mutex::new(None) }),
            // The number of a thread that is not the first of its process: ENOENT, and EINVAL before 6.16.
            Err(Errno::NOENT | Errno::INVAL) => Err(Errno::SRCH.into()),
            // A seccomp filter refuses: the call itself needs no right.
            Err(Errno::NOSYS | Errno::PERM) => Err(refused()),
            Err(error) => Err(error.into()),
        }
    }

    fn refused() -> io::Error {
        let message = "a process can only be opened as a pidfd, and this machine refuses those";
        io::Error::new(io::ErrorKind::Unsupported, message)
    }

    impl Opened {
        pub(super) fn member(&self) -> &Member {
            &self.member
        }

        /// Returns the pidfd, which `open` gave to the member.
        fn pidfd(&self) -> io::Result<BorrowedFd<'_>> {
            self.member.pidfd().ok_or_else(|| Errno::BADF.into())
        }

        pub(super) fn state(&self) -> io::Result<ProcessState> {
            let mut state = self.lock();
            if let Some(ended) = *state {
                return Ok(ProcessState::Ended(ended));
            }
            if !self.poll(PollFlags::IN, Duration::ZERO)? {
                return Ok(ProcessState::Running);
            }
            let options = libc::WEXITED | libc::WNOHANG;
            let pidfd = self.pidfd()?;
            let ended = match waitid(WaitTarget::Pidfd(pidfd), options) {
                Ok(None) => return Ok(ProcessState::Running),
                Ok(Some((status, usage))) => Ended { status, usage: Some(usage) },
                // Not a child of this process, or other code of this program has reaped it.
                Err(Errno::CHILD) => match saved_status(pidfd) {
                    SavedStatus::Known(status) => Ended { status, usage: None },
                    SavedStatus::NotReaped | SavedStatus::Unavailable => {
                        return Ok(ProcessState::StatusUnknown);
                    }
                },
                Err(error) => return Err(error.into()),
            };
            *state = Some(ended);
            Ok(ProcessState::Ended(ended))
        }

        pub(super) fn wait_for_reap(&self, limit: Duration) {
            let saved = self.pidfd().map(saved_status);
            if matches!(saved, Ok(SavedStatus::NotReaped)) {
                // No event is requested: POLLHUP, which comes without a request, comes with the reap.
                // Ignored: after any error the status is as unknown as before.
                let _ = self.poll(PollFlags::empty(), limit);
            }
        }

        /// Waits for that event or POLLHUP. Returns false if neither came in time.
        fn poll(&self, flags: PollFlags, limit: Duration) -> io::Result<bool> {
            let start = Instant::now();
            loop {
                let left = limit.saturating_sub(start.elapsed());
                // A limit too large for the call means no limit.
                let left = Timespec::try_from(left).ok();
                let mut polled = [PollFd::from_borrowed_fd(self.pidfd()?, flags)];
                match poll_again(&mut polled, left.as_ref()) {
                    Err(Errno::INTR) => {}
                    done => return Ok(done? > 0),
                }
            }
        }

        fn lock(&self) -> MutexGuard<'_, Option<Ended>> {
            // The state is one assignment: a panic elsewhere cannot have left it half-written.
            self.ended.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

// A process that was opened by its number is held by a kqueue and its start time.
#[cfg(target_os = "macos")]
mod imp {
    use std::io;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use super::{ProcessState, impossible_number};
    use crate::process::libproc::{ProcessInfo, StartTime, members_of};
    use crate::process::member::Member;
    use crate::process::status::{Ended, wait4};

    pub(super) fn group_lives(group: u32) -> Option<bool> {
        let lives = |pid: u32| ProcessInfo::of(pid).is_some_and(|process| !process.has_ended());
        Some(members_of(group).into_iter().any(lives))
    }

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let has_ended = ProcessInfo::of(pid).is_some_and(|process| process.has_ended());
        if has_ended { None } else { StartTime::of(pid).map(StartTime::as_microseconds) }
    }

    #[derive(Debug)]
    pub(super) struct Opened {
        member: Member,
        ended: Mutex<Option<Ended>>,
    }

    pub(super) fn open(pid: u32) -> io::Result<Opened> {
        let is_number = i32::try_from(pid).is_ok_and(|pid| pid > 0);
        if !is_number {
            return Err(impossible_number());
        }
        match Member::of(pid)? {
            Some(member) => Ok(Opened { member, ended: Mutex::new(None) }),
            None => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    impl Opened {
        pub(super) fn member(&self) -> &Member {
            &self.member
        }

        pub(super) fn state(&self) -> io::Result<ProcessState> {
            let mut state = self.lock();
            if let Some(ended) = *state {
                return Ok(ProcessState::Ended(ended));
            }
            let process = &self.member;
            if !process.has_ended() {
                return Ok(ProcessState::Running);
            }
            let own = std::process::id();
            let is_ours = |state: ProcessInfo| state.parent == own;
            if process.keeps_pid() && ProcessInfo::of(self.member.pid()).is_some_and(is_ours) {
                // It is at least exiting, so this is short.
                match wait4(self.member.pid() as i32, 0) {
                    Ok(Some((status, usage))) => {
                        *state = Some(Ended { status, usage: Some(usage) });
                    }
                    // Other code of this program has reaped it first.
                    Ok(None) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {}
                    Err(error) => return Err(error),
                }
            }
            if state.is_none() {
                *state = process.take_status().map(|status| Ended { status, usage: None });
            }
            Ok((*state).map_or(ProcessState::StatusUnknown, ProcessState::Ended))
        }

        pub(super) fn wait_for_reap(&self, _: Duration) {
            // All that can be known of a status is known at the end; the reap adds nothing.
        }

        fn lock(&self) -> MutexGuard<'_, Option<Ended>> {
            // The state is one assignment: a panic elsewhere cannot have left it half-written.
            self.ended.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

// A process that was opened by its number is held by a HANDLE.
#[cfg(windows)]
mod imp {
    use std::io;
    use std::time::Duration;

    use super::{ProcessState, impossible_number};
    use crate::process::member::Member;
    use crate::process::process_object::ProcessObject;

    pub(super) fn group_lives(_: u32) -> Option<bool> {
        Some(false)
    }

    pub(super) fn start_time(pid: u32) -> Option<u64> {
        let process = ProcessObject::open(pid).ok()??;
        if process.has_ended() { None } else { process.created() }
    }

    #[derive(Debug)]
    pub(super) struct Opened(Member);

    pub(super) fn open(pid: u32) -> io::Result<Opened> {
        if pid == 0 || i32::try_from(pid).is_err() {
            return Err(impossible_number());
        }
        match ProcessObject::open(pid)? {
            Some(process) => Ok(Opened(Member::new(pid, process))),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no process has that number")),
        }
    }

    impl Opened {
        pub(super) fn member(&self) -> &Member {
            &self.0
        }

        pub(super) fn state(&self) -> io::Result<ProcessState> {
            let ended = self.0.process().end()?;
            Ok(ended.map_or(ProcessState::Running, ProcessState::Ended))
        }

        #[expect(clippy::unused_self, reason = "the contract's")]
        pub(super) fn wait_for_reap(&self, _: Duration) {
            // Nothing is reaped here: every process with a handle can read the exit status.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_start_time_and_a_missing_one_has_none() {
        let own = start_time(std::process::id());
        assert!(own.is_some_and(|time| time > 0), "{own:?}");
        assert_eq!(own, start_time(std::process::id()));
        assert_eq!(start_time(u32::MAX), None);
    }
}
