//! A member is a kqueue and the time of its start.
//!
//! The kqueue is bound to the process, so as long as it has not fired the number is that process's.
//! But a signal goes by the number (there is nothing else that it could go by), so it could meet
//! another process if between the last look and `kill(2)`, a few instructions, the process ended, was
//! reaped, and its number was given away again, which takes going through all the other numbers
//! first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::Member as Public;
use crate::base::event::Source;
use crate::base::signal::Signal;
use crate::process::kqueue::Watch;
use crate::process::libproc::{Started, State, is_taken, kill};
use crate::process::status::ExitStatus;

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    watch: Watch,
    /// Unknown of another user's process.
    started: Option<Started>,
}

impl Member {
    fn of(pid: u32) -> io::Result<Option<Member>> {
        let watch = Watch::of(pid)?;
        // After the watch: if that has not fired when this is told, both are about one process.
        let started = Started::of(pid);
        Ok(is_taken(pid).then_some(Member { pid, watch, started }))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        if self.has_ended() {
            // Until it is reaped it would take the signal, and nothing would come of it.
            return Ok(self.keeps_its_number());
        }
        if !self.is_as_old() {
            return Ok(false);
        }
        match i32::try_from(self.pid) {
            Ok(pid) => kill(pid, signal),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn group(&self) -> Option<u32> {
        let state = State::of(self.pid)?;
        // Asked while it keeps its number, or the answer may be another's.
        self.keeps_its_number().then_some(state.group)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.has_ended()
    }

    pub(super) fn rests(&self) -> bool {
        !self.keeps_its_number() || State::of(self.pid).is_none_or(|state| state.rests())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.watch.has_fired()
    }

    /// Whether it has not been reaped, so that its number is nobody else's.
    pub(crate) fn keeps_its_number(&self) -> bool {
        if !self.has_ended() {
            return self.is_as_old() && is_taken(self.pid);
        }
        // It is a zombie or on its way to be one: whoever runs has the number after it.
        State::of(self.pid).is_some_and(|state| state.is_ending()) && self.is_as_old()
    }

    /// What cannot be compared says nothing: it belongs to another user, or does so by now.
    fn is_as_old(&self) -> bool {
        match (self.started, Started::of(self.pid)) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        }
    }
}

impl Public {
    /// Takes hold of whoever has the number; `None` where nobody has it.
    pub(crate) fn of(pid: u32) -> io::Result<Option<Public>> {
        Ok(Member::of(pid)?.map(|member| Public(Arc::new(member))))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// How it has ended, where that was told.
    pub(crate) fn take_status(&self) -> Option<ExitStatus> {
        self.0.watch.take_status()
    }

    /// Returns true if it has not been reaped, so that its number is nobody else's.
    pub(crate) fn keeps_its_number(&self) -> bool {
        self.0.keeps_its_number()
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
        // An error is a want of room: whoever cannot be held is not found.
        let member = Public::of(pid).ok()??;
        // Asked when it is held: had the number passed to another process before, that one would not
        // belong; and had it ended since, the watch would say so.
        (belongs() && member.is_alive()).then_some(member)
    }
}

pub(super) fn source(member: &Public) -> Source<'_> {
    Source::Readable(member.as_fd())
}

impl AsFd for Public {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watch.as_fd()
    }
}
