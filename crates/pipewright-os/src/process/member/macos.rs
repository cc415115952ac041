//! A member is held by a kqueue and its start time.
//!
//! The kqueue is bound to the process, so until it has fired the number is that process's. But a signal can
//! go only by the number. It could reach another process if, in the few instructions between the last check
//! and `kill(2)`, the process ended, was reaped, and its number was given out again, for which the kernel
//! first has to go through all the other numbers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::Member as Public;
use crate::base::signal::Signal;
use crate::base::wake::EventSource;
use crate::process::kqueue::ExitWatch;
use crate::process::libproc::{ProcessInfo, StartTime, is_taken, kill};
use crate::process::status::ExitStatus;

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    watch: ExitWatch,
    /// The start time; unknown for another user's process.
    start_time: Option<StartTime>,
}

impl Member {
    fn of(pid: u32) -> io::Result<Option<Member>> {
        let watch = ExitWatch::of(pid)?;
        // Read after the watch is made: if the watch has not fired by then, both are about one process.
        let start_time = StartTime::of(pid);
        Ok(is_taken(pid).then_some(Member { pid, watch, start_time }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        if self.has_ended() {
            // Until it is reaped it would accept the signal, without effect.
            return Ok(self.owns_pid());
        }
        if !self.has_same_start_time() {
            return Ok(false);
        }
        match i32::try_from(self.pid) {
            Ok(pid) => kill(pid, signal),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn group(&self) -> Option<u32> {
        let state = ProcessInfo::of(self.pid)?;
        // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
        self.owns_pid().then_some(state.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended()
    }

    pub(super) fn is_stopped_or_ended(&self) -> bool {
        !self.owns_pid()
            || ProcessInfo::of(self.pid).is_none_or(|state| state.is_stopped_or_ended())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.watch.has_fired()
    }

    /// Returns true if it has not been reaped, so that no other process can have its number.
    pub(crate) fn owns_pid(&self) -> bool {
        if !self.has_ended() {
            return self.has_same_start_time() && is_taken(self.pid);
        }
        // It is a zombie or about to become one: a process that runs got the number later.
        ProcessInfo::of(self.pid).is_some_and(|state| state.is_ending())
            && self.has_same_start_time()
    }

    /// Compares the start times. Times that cannot be compared prove nothing: the process belongs,
    /// or now belongs, to another user.
    fn has_same_start_time(&self) -> bool {
        match (self.start_time, StartTime::of(self.pid)) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        }
    }
}

impl Public {
    /// Opens the process that has the number; `None` if there is none.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Public>> {
        Ok(Member::of(pid)?.map(|member| Public(Arc::new(member))))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// Takes the exit status, if the kernel reported it.
    pub(crate) fn take_status(&self) -> Option<ExitStatus> {
        self.0.watch.take_status()
    }

    /// Returns true if it has not been reaped, so that no other process can have its number.
    pub(crate) fn keeps_pid(&self) -> bool {
        self.0.owns_pid()
    }

    /// Does the same, in the form of systems on which that can fail.
    pub(crate) fn owns_pid(&self) -> io::Result<bool> {
        Ok(self.keeps_pid())
    }

    /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended or is a member
    /// already.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<Option<Public>> {
        let known = |member: &Public| member.0.pid == pid && member.0.owns_pid();
        if members.iter().any(known) {
            return Ok(None);
        }
        // An error means that there is no room.
        let Some(member) = Public::of(pid)? else { return Ok(None) };
        // Checked once it is open: if the number had passed to another process before, that one would not
        // belong; and if the process had ended since, the watch would have fired.
        Ok((belongs()? && member.is_alive()).then_some(member))
    }
}

pub(super) fn source(member: &Public) -> EventSource<'_> {
    EventSource::Readable(member.as_fd())
}

impl AsFd for Public {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watch.as_fd()
    }
}
