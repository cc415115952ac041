//! A member is held by a pidfd. Beyond [`MOST_OPEN`] of them the pidfd is opened again for each use.

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

/// The most members of one list whose pidfds stay open: a stop of a tree with a thousand processes would take all handles
/// that a program may have by default, and other threads could open nothing meanwhile.
const MOST_OPEN: usize = 64;

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    Pidfd(OwnedFd),
    /// The time of its start, which no later process with its number has.
    Start(u64),
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let sent = self.with_pidfd(|pidfd| send(pidfd, signal.number(), 0));
        Ok(sent.unwrap_or(Ok(false))?)
    }

    pub(super) fn group(&self) -> Option<u32> {
        let stat = Stat::of(self.pid)?;
        // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
        self.owns_pid().then_some(stat.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.poll(Duration::ZERO), Some(Ok(0)))
    }

    /// Waits until it has ended, at most that long. Returns true if it has. A signal cuts the wait short.
    pub(super) fn wait_timeout(&self, limit: Duration) -> bool {
        !matches!(self.poll(limit), Some(Ok(0) | Err(_)))
    }

    fn poll(&self, limit: Duration) -> Option<rustix::io::Result<usize>> {
        self.with_pidfd(|pidfd| {
            let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
            poll(&mut polled, Timespec::try_from(limit).ok().as_ref())
        })
    }

    /// Calls `act` with a pidfd of it; `None` if it is gone, or if there is no room for a handle.
    fn with_pidfd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        match &self.hold {
            Hold::Pidfd(pidfd) => Some(act(pidfd.as_fd())),
            Hold::Start(start) => {
                let pidfd = i32::try_from(self.pid).ok().and_then(open_pidfd)?;
                // Checked after the pidfd is open, as by `open`.
                let is_it = Stat::of(self.pid).is_some_and(|stat| stat.start == *start);
                is_it.then(|| act(pidfd.as_fd()))
            }
        }
    }

    pub(super) fn is_stopped_or_ended(&self) -> bool {
        !self.owns_pid() || Stat::of(self.pid).is_none_or(|stat| stat.is_stopped_or_ended())
    }

    /// Returns true if it is unreaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> bool {
        !matches!(self.with_pidfd(|pidfd| send(pidfd, 0, 0)), None | Some(Ok(false)))
    }
}

impl Public {
    /// Returns its pidfd, if that is open: it is unless [`Public::open`] made it.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.hold {
            Hold::Pidfd(pidfd) => Some(pidfd.as_fd()),
            Hold::Start(_) => None,
        }
    }

    /// Returns true if it is unreaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> bool {
        self.0.owns_pid()
    }

    pub(crate) fn wait_timeout(&self, limit: Duration) -> bool {
        self.0.wait_timeout(limit)
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
        if !belongs() {
            return None;
        }
        if members.len() < MOST_OPEN {
            return Some(Public::new(pid, pidfd));
        }
        // The pidfd is open, so this is the start of the same process, unless it has been reaped since.
        let hold = Hold::Start(Stat::of(pid)?.start);
        let is_it = !matches!(send(pidfd.as_fd(), 0, 0), Ok(false));
        is_it.then(|| Public(Arc::new(Member { pid, hold })))
    }

    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Public {
        Public(Arc::new(Member { pid, hold: Hold::Pidfd(pidfd) }))
    }
}

pub(super) fn source(member: &Public) -> EventSource<'_> {
    member.pidfd().map_or(EventSource::UNWAITABLE, EventSource::Readable)
}
