//! Descendants through `/proc`, held by pidfds.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::Member as Public;
use crate::exit::linux::{open_pidfd, send};
use crate::signal::Signal;

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
        send(self.pidfd.as_fd(), signal.number(), 0)
    }

    pub(super) fn group(&self) -> Option<u32> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let group = rustix::process::getpgid(Some(pid)).ok()?;
        // Asked while it is still there, or the answer may be another's.
        self.is_alive().then(|| group.as_raw_nonzero().get() as u32)
    }

    pub(super) fn is_alive(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
    }
}

impl AsFd for Public {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }
}

pub(super) fn collect(root: u32, members: &mut Vec<Public>) {
    // The list grows while it is walked: a member's children come after it.
    let mut next = 0;
    let mut parent = root;
    loop {
        for pid in children_of(parent) {
            if members.iter().any(|member| member.0.pid == pid && member.0.is_alive()) {
                continue;
            }
            if let Some(member) = hold(pid, parent) {
                members.push(Public(Arc::new(member)));
            }
        }
        let Some(member) = members.get(next) else {
            return;
        };
        parent = member.0.pid;
        next += 1;
    }
}

/// Takes hold of a process, provided that it still is the child of that parent.
fn hold(pid: u32, parent: u32) -> Option<Member> {
    let pidfd = open_pidfd(i32::try_from(pid).ok()?)?;
    // Asked after the pidfd is open: had the number passed to another process before, that one
    // would have another parent, or be a sibling that we are after as well.
    (parent_of(pid)? == parent).then_some(Member { pid, pidfd })
}

fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        if let Ok(list) = fs::read_to_string(task.path().join("children")) {
            children
                .extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    children
}

/// Field 4 of `/proc/PID/stat`, after the name, which may hold anything but ends at the last `)`.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}
