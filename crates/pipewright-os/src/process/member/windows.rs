//! A member is held by a HANDLE.

use std::io;
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::sync::Arc;

use super::Member as Public;
use crate::base::signal::Signal;
use crate::base::wake::EventSource;
use crate::process::process_object::{ProcessObject, unsupported};

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    process: ProcessObject,
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        if signal == Signal::KILL {
            return self.process.kill();
        }
        if self.process.has_ended() {
            return Ok(false);
        }
        Err(unsupported(signal, "Windows can only kill it"))
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn group(&self) -> Option<u32> {
        // The system does not report the group of a process.
        None
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.process.has_ended()
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn is_stopped_or_ended(&self) -> bool {
        // Windows does not stop processes, so there is nothing to wait for.
        true
    }
}

pub(super) fn source(member: &Public) -> EventSource<'_> {
    EventSource::Signalled(member.as_handle())
}

impl AsHandle for Public {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.process.as_handle()
    }
}

impl Public {
    pub(crate) fn new(pid: u32, process: ProcessObject) -> Public {
        Public(Arc::new(Member { pid, process }))
    }

    pub(crate) fn process(&self) -> &ProcessObject {
        &self.0.process
    }

    /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended, may not be
    /// queried, or is a member already.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce(&ProcessObject) -> bool,
    ) -> Option<Public> {
        // A member keeps its number.
        if members.iter().any(|member| member.0.pid == pid) {
            return None;
        }
        let process = ProcessObject::open(pid).ok().flatten()?;
        let taken = !process.has_ended() && belongs(&process);
        taken.then(|| Public::new(pid, process))
    }
}
