//! A member is held by a pidfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Member as Public;
use crate::base::event::EventSource;
use crate::base::signal::Signal;
use crate::process::pidfd::{open_pidfd, send};
use crate::process::procfs::Stat;

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    pidfd: OwnedFd,
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        Ok(send(self.pidfd.as_fd(), signal.number(), 0)?)
    }

    pub(super) fn group(&self) -> Option<u32> {
        let stat = Stat::of(self.pid)?;
        // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
        self.owns_pid().then_some(stat.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.poll(Duration::ZERO), Ok(0))
    }

    /// Waits until it has ended, at most that long.
    pub(super) fn wait_timeout(&self, limit: Duration) {
        // Ignored: the caller checks afterwards if it has ended. A signal cuts the wait short.
        let _ = self.poll(limit);
    }

    fn poll(&self, limit: Duration) -> rustix::io::Result<usize> {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut polled, Timespec::try_from(limit).ok().as_ref())
    }

    pub(super) fn is_stopped_or_ended(&self) -> bool {
        !self.owns_pid() || Stat::of(self.pid).is_none_or(|stat| stat.is_stopped_or_ended())
    }

    /// Returns true if it is unreaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> bool {
        !matches!(send(self.pidfd.as_fd(), 0, 0), Ok(false))
    }
}

impl Public {
    /// Returns true if it is unreaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> bool {
        self.0.owns_pid()
    }

    pub(crate) fn wait_timeout(&self, limit: Duration) {
        self.0.wait_timeout(limit);
    }

    /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended or is a member
    /// already.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce() -> bool,
    ) -> Option<Public> {
        let known = |member: &Public| member.0.pid == pid && member.0.owns_pid();
        if members.iter().any(known) {
            return None;
        }
        let pidfd = i32::try_from(pid).ok().and_then(open_pidfd)?;
        // Checked after the pidfd is open: if the number had passed to another process before, that one
        // would not belong.
        belongs().then(|| Public::new(pid, pidfd))
    }

    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Public {
        Public(Arc::new(Member { pid, pidfd }))
    }
}

pub(super) fn source(member: &Public) -> EventSource<'_> {
    EventSource::Readable(member.as_fd())
}

impl AsFd for Public {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }
}
