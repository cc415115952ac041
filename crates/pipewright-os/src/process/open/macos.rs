//! A process that was opened by its number is held by a kqueue and its start time.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{ProcessState, impossible_number};
use crate::process::libproc::{ProcessInfo, members_of};
use crate::process::member::Member;
use crate::process::status::Ended;
use crate::process::wait4::wait4;

pub(super) fn group_lives(group: u32) -> Option<bool> {
    let lives = |pid: u32| ProcessInfo::of(pid).is_some_and(|process| !process.has_ended());
    Some(members_of(group).into_iter().any(lives))
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
