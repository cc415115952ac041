//! A process that was opened by its number is held by a HANDLE.

use std::io;
use std::time::Duration;

use super::{ProcessState, impossible_number};
use crate::process::member::Member;
use crate::process::process_object::ProcessObject;

pub(super) fn group_lives(_: u32) -> Option<bool> {
    Some(false)
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
