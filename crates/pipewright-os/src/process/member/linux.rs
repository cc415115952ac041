//! A member is held by a pidfd. Beyond [`MOST_OPEN`] of them the pidfd is opened again for each use.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Member as Public;
use crate::base::signal::Signal;
use crate::base::wake::EventSource;
use crate::process::pidfd::{open_pidfd, send};
use crate::process::procfs::Stat;
use crate::process::room::is_lack_of_room;

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
    /// The pidfd that a child handle has too.
    Shared(Arc<OwnedFd>),
    /// The time of its start, which no later process with its number has.
    Start(u64),
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let sent = self.with_pidfd(|pidfd| send(pidfd, signal.number(), 0))?;
        Ok(sent.unwrap_or(false))
    }

    pub(super) fn group(&self) -> Option<u32> {
        let stat = Stat::of(self.pid).ok()??;
        // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
        self.owns_pid().is_ok_and(|owns| owns).then_some(stat.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.has_ended_within(Duration::ZERO), Ok(false) | Err(_))
    }

    /// Waits until it has ended, at most that long. Returns true if it has. A signal cuts the wait short.
    pub(super) fn wait_timeout(&self, limit: Duration) -> bool {
        matches!(self.has_ended_within(limit), Ok(true))
    }

    fn has_ended_within(&self, limit: Duration) -> rustix::io::Result<bool> {
        let polled = self.with_pidfd(|pidfd| {
            let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
            poll(&mut polled, Timespec::try_from(limit).ok().as_ref())
        })?;
        Ok(polled.is_none_or(|events| events > 0))
    }

    /// Calls `act` with a pidfd of it; `None` if it is gone.
    ///
    /// # Errors
    /// The error of the call; or there is no room for a handle, which says nothing about the process.
    fn with_pidfd<T>(
        &self,
        act: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<Option<T>> {
        match &self.hold {
            Hold::Pidfd(pidfd) => act(pidfd.as_fd()).map(Some),
            Hold::Shared(pidfd) => act(pidfd.as_fd()).map(Some),
            Hold::Start(start) => {
                let Some(pidfd) = open_pidfd(self.pid as i32)? else { return Ok(None) };
                // Checked after the pidfd is open, as by `open`.
                let is_it = Stat::of(self.pid)?.is_some_and(|stat| stat.start == *start);
                if is_it { act(pidfd.as_fd()).map(Some) } else { Ok(None) }
            }
        }
    }

    pub(super) fn is_stopped_or_ended(&self) -> bool {
        let has_gone = matches!(self.owns_pid(), Ok(false));
        has_gone
            || Stat::of(self.pid)
                .is_ok_and(|stat| stat.is_none_or(|stat| stat.is_stopped_or_ended()))
    }

    /// Returns true if it is unreaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> rustix::io::Result<bool> {
        match self.with_pidfd(|pidfd| send(pidfd, 0, 0)) {
            // Another user's.
            Err(Errno::PERM) => Ok(true),
            sent => Ok(sent?.unwrap_or(false)),
        }
    }
}

impl Public {
    /// Returns its pidfd, if that is open: it is unless [`Public::open`] made it.
    pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.hold {
            Hold::Pidfd(pidfd) => Some(pidfd.as_fd()),
            Hold::Shared(pidfd) => Some(pidfd.as_fd()),
            Hold::Start(_) => None,
        }
    }

    /// Returns true if it is unreaped, so that no other process can have its number.
    ///
    /// # Errors
    /// There is no room to find out.
    pub(crate) fn owns_pid(&self) -> io::Result<bool> {
        Ok(self.0.owns_pid()?)
    }

    pub(crate) fn wait_timeout(&self, limit: Duration) -> bool {
        self.0.wait_timeout(limit)
    }

    /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended or is a member
    /// already.
    ///
    /// # Errors
    /// There is no room to open it.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<Option<Public>> {
        for member in members.iter().filter(|member| member.0.pid == pid) {
            if member.0.owns_pid()? {
                return Ok(None);
            }
        }
        let pidfd = match open_pidfd(pid as i32) {
            Ok(Some(pidfd)) => pidfd,
            Ok(None) => return Ok(None),
            Err(error) if is_lack_of_room(error) => return Err(error.into()),
            // This machine has no pidfds: no member can be held.
            Err(_) => return Ok(None),
        };
        // Checked after the pidfd is open: if the number had passed to another process before, that one
        // would not belong.
        if !belongs()? {
            return Ok(None);
        }
        if members.len() < MOST_OPEN && leaves_room(&pidfd) {
            return Ok(Some(Public::new(pid, pidfd)));
        }
        // The pidfd is open, so this is the start of the same process, unless it has been reaped since.
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        let hold = Hold::Start(stat.start);
        let is_it = !matches!(send(pidfd.as_fd(), 0, 0), Ok(false));
        Ok(is_it.then(|| Public(Arc::new(Member { pid, hold }))))
    }

    /// Makes a member that has the pidfd of a child handle.
    pub(crate) fn sharing(pid: u32, pidfd: Arc<OwnedFd>) -> Public {
        Public(Arc::new(Member { pid, hold: Hold::Shared(pidfd) }))
    }

    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Public {
        Public(Arc::new(Member { pid, hold: Hold::Pidfd(pidfd) }))
    }
}

/// Returns true if, beside that one, as many handles are free as finding and signalling another process takes.
fn leaves_room(pidfd: &OwnedFd) -> bool {
    pidfd.try_clone().and_then(|_second| pidfd.try_clone().map(|_third| ())).is_ok()
}

pub(super) fn source(member: &Public) -> EventSource<'_> {
    member.pidfd().map_or(EventSource::UNWAITABLE, EventSource::Readable)
}
