//! A process that was opened by its number is held by a pidfd.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use super::{ProcessState, impossible_number};
use crate::process::child::linux::{WaitTarget, waitid};
use crate::process::member::Member;
use crate::process::pidfd::{SavedStatus, pidfds_are_refused, saved_status};
use crate::process::status::Ended;

pub(super) use crate::process::procfs::group_lives;

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
            match rustix::event::poll(&mut polled, left.as_ref()) {
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
