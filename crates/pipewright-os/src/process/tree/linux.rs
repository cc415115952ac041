//! Descendants through `/proc`, held by pidfds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Member as Public, proc};
use crate::base::event::Source;
use crate::base::signal::Signal;
use crate::process::child::ChildHandle;
use crate::process::child::linux::{open_pidfd, send};

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    pidfd: OwnedFd,
}

impl Member {
    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Member {
        Member { pid, pidfd }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        Ok(send(self.pidfd.as_fd(), signal.number(), 0)?)
    }

    pub(super) fn group(&self) -> Option<u32> {
        let stat = Stat::of(self.pid)?;
        // Asked while it keeps its number, or the answer may be another's.
        self.keeps_its_number().then_some(stat.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.poll(Duration::ZERO), Ok(0))
    }

    /// Waits until it has ended, but not longer than that.
    pub(super) fn wait_for_its_end(&self, limit: Duration) {
        // Ignored: the caller asks afterwards whether it has. A signal ends the wait early.
        let _ = self.poll(limit);
    }

    fn poll(&self, limit: Duration) -> rustix::io::Result<usize> {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut polled, Timespec::try_from(limit).ok().as_ref())
    }

    pub(super) fn rests(&self) -> bool {
        !self.keeps_its_number() || Stat::of(self.pid).is_none_or(|stat| stat.rests())
    }

    /// Until it is reaped nobody else can have its number.
    pub(crate) fn keeps_its_number(&self) -> bool {
        !matches!(send(self.pidfd.as_fd(), 0, 0), Ok(false))
    }
}

impl Public {
    pub(crate) fn wait_for_its_end(&self, limit: Duration) {
        self.0.wait_for_its_end(limit);
    }

    /// Takes hold of a process that `belongs` while it is held; `None` where it is gone, has ended
    /// or is a member already.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce() -> bool,
    ) -> Option<Public> {
        let known = |member: &Public| member.0.pid == pid && member.0.keeps_its_number();
        if members.iter().any(known) {
            return None;
        }
        let pidfd = i32::try_from(pid).ok().and_then(open_pidfd)?;
        // Asked after the pidfd is open: had the number passed to another process before, that one
        // would not belong.
        belongs().then(|| Public::new(pid, pidfd))
    }

    pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Public {
        Public(Arc::new(Member { pid, pidfd }))
    }
}

pub(super) fn source(member: &Public) -> Source<'_> {
    Source::Readable(member.as_fd())
}

impl AsFd for Public {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }
}

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Public>) {
    if proc_is_ours() {
        super::walk::collect(root, members);
    }
}

/// Whether the root has stopped, or has ended.
pub(super) fn rests(root: &ChildHandle) -> bool {
    !root.keeps_its_number() || Stat::of(root.pid()).is_none_or(|stat| stat.rests())
}

/// Takes hold of the children of one process. Numbers are all that `/proc` has, so every answer is
/// believed only if the parent turns out to have kept its number throughout.
pub(crate) fn add_children(
    parent: u32,
    keeps_its_number: impl Fn() -> bool,
    members: &mut Vec<Public>,
) {
    for pid in children_of(parent) {
        let is_child = || {
            let stat = Stat::of(pid);
            stat.is_some_and(|stat| stat.parent == parent && !stat.has_ended())
                && keeps_its_number()
        };
        if let Some(member) = Public::open(pid, members, is_child) {
            members.push(member);
        }
    }
}

/// Whether the process of that number is stopped, or traced.
pub(crate) fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| matches!(stat.state, b'T' | b't'))
}

/// Whether the process of that number is a child of that one.
pub(crate) fn is_child_of(pid: u32, parent: &Public) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.parent == parent.pid()) && parent.0.keeps_its_number()
}

fn children_of(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for task in proc::numbers_in(&format!("/proc/{pid}/task")).unwrap_or_default() {
        let list = proc::read(&format!("/proc/{pid}/task/{task}/children")).unwrap_or_default();
        for word in proc::words(&list) {
            if let Some(child) = proc::number(word) {
                children.push(child);
            }
        }
    }
    children
}

/// Whether `/proc` shows the processes that we mean by their numbers: not that of another pid
/// namespace.
pub(crate) fn proc_is_ours() -> bool {
    proc::number_behind("/proc/self") == Some(std::process::id())
}

/// Whether a process of the group lives; `None` where `/proc` cannot be read.
pub(crate) fn group_lives(group: u32) -> Option<bool> {
    if !proc_is_ours() {
        return None;
    }
    let lives = |stat: Stat| stat.group == group && !stat.has_ended();
    let pids = proc::numbers_in("/proc")?;
    Some(pids.into_iter().any(|pid| Stat::of(pid).is_some_and(lives)))
}

/// What is needed of `/proc/PID/stat` (proc(5)).
struct Stat {
    state: u8,
    parent: u32,
    group: u32,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        let stat = proc::read(&format!("/proc/{pid}/stat"))?;
        // The name in front may hold anything, but ends at the last parenthesis.
        let mut fields = proc::words(stat.rsplit(|byte| *byte == b')').next()?);
        Some(Stat {
            state: *fields.next()?.first()?,
            parent: proc::number(fields.next()?)?,
            group: proc::number(fields.next()?)?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether it starts nobody any more, for now.
    fn rests(&self) -> bool {
        matches!(self.state, b'T' | b't') || self.has_ended()
    }
}
