//! A child is a HANDLE on its process.

use std::io;
use std::os::windows::io::{AsHandle, BorrowedHandle};
use std::sync::OnceLock;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, GetConsoleProcessList,
};

use super::{ContainedTree, Containment};
use crate::base::signal::Signal;
use crate::base::wake::{EventSource, is_signalled};
use crate::process::process_object::{ProcessObject, unsupported};
use crate::process::status::Ended;
use crate::process::usage::Usage;

#[derive(Debug)]
pub(crate) struct ChildHandle {
    pid: u32,
    /// The handle on the process; `None` if there is no child.
    process: Option<ProcessObject>,
    /// The first result: the system forgets parts of it when the process is gone for good.
    ended: OnceLock<Ended>,
    /// True if it leads a console process group of its own.
    leads_group: bool,
    /// True if it was started with this process's console, so that an event reaches its group.
    shares_console: bool,
    pub(crate) containment: Containment,
    pub(crate) tree: Option<Box<dyn ContainedTree>>,
}

impl ChildHandle {
    pub(crate) fn new(pid: u32, process: ProcessObject) -> ChildHandle {
        ChildHandle {
            pid,
            process: Some(process),
            ended: OnceLock::new(),
            leads_group: false,
            shares_console: false,
            containment: Containment::None,
            tree: None,
        }
    }

    /// Marks the child as the leader of a console process group.
    pub(crate) fn with_own_group(self, shares_console: bool) -> ChildHandle {
        ChildHandle { leads_group: true, shares_console, containment: Containment::Group, ..self }
    }

    pub(crate) fn with_tree(self, tree: Box<dyn ContainedTree>) -> ChildHandle {
        ChildHandle { containment: tree.containment(), tree: Some(tree), ..self }
    }

    pub(super) fn already_ended() -> ChildHandle {
        ChildHandle {
            pid: 0,
            process: None,
            ended: OnceLock::new(),
            leads_group: false,
            shares_console: false,
            containment: Containment::None,
            tree: None,
        }
    }

    pub(crate) fn as_process(&self) -> Option<&ProcessObject> {
        self.process.as_ref()
    }

    /// Returns the handle to wait for; `None` if there is no child, which counts as ended.
    pub(crate) fn process(&self) -> Option<BorrowedHandle<'_>> {
        self.process.as_ref().map(AsHandle::as_handle)
    }

    /// Returns true if it has ended, or if there is no child.
    pub(super) fn has_ended(&self) -> bool {
        self.process().is_none_or(is_signalled)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn rss_bytes(&self) -> Option<u64> {
        self.process.as_ref().and_then(ProcessObject::rss_bytes)
    }

    pub(super) fn wait(&self) -> io::Result<Ended> {
        if let Some(process) = &self.process {
            process.wait()?;
        }
        // Cannot be None after the wait; not worth a panic if it is.
        Ok(self.try_wait()?.unwrap_or_default())
    }

    pub(super) fn wait_exclusive(&mut self) -> io::Result<Ended> {
        self.wait()
    }

    pub(super) fn try_wait(&self) -> io::Result<Option<Ended>> {
        if let Some(ended) = self.ended.get() {
            return Ok(Some(*ended));
        }
        let ended = match &self.process {
            Some(process) => process.end()?,
            None => Some(Ended::default()),
        };
        Ok(ended.map(|ended| *self.ended.get_or_init(|| ended)))
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(process) = &self.process else { return Ok(false) };
        if signal == Signal::KILL {
            return process.kill();
        }
        if process.has_ended() {
            return Ok(false);
        }
        let asks_to_end = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP].contains(&signal);
        if !asks_to_end || !self.leads_group || !self.shares_console {
            return Err(unsupported(signal, "Windows can only kill it"));
        }
        if !is_on_console(console_processes().as_deref(), self.pid) {
            // A program with windows, or one that has left this process's console: the call below would
            // succeed without asking any process.
            return Err(unsupported(signal, "it is not attached to this console"));
        }
        // Ctrl-Break and not Ctrl-C, which a new group ignores at its start.
        // SAFETY: numbers. The process is held, so that the number means its group and no other.
        match unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, self.pid) } {
            // It has no console, like a program with windows, or has left this process's.
            0 => Err(unsupported(signal, &io::Error::last_os_error().to_string())),
            _ => Ok(true),
        }
    }

    /// Returns the handle on the process; a null handle if there is no child.
    pub(super) fn handle(&self) -> BorrowedHandle<'_> {
        match &self.process {
            Some(process) => process.as_handle(),
            // SAFETY: null refers to no object, and every call returns an error for it.
            None => unsafe { BorrowedHandle::borrow_raw(std::ptr::null_mut()) },
        }
    }

    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        // The event goes to the whole group, and nothing else can be sent to a group.
        self.signal(signal)
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn refine_peak_memory(&self, usage: Usage) -> Usage {
        // The figure is the child's own from the start.
        usage
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn take_stop(&self) -> bool {
        // Windows does not stop processes.
        false
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn is_stopped(&self) -> bool {
        false
    }

    pub(super) fn is_group_leader(&self) -> bool {
        self.leads_group
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn is_in_group(&self, _: u32) -> bool {
        // The system does not report the group of a process.
        false
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn group_survives_reap(&self) -> bool {
        // Nothing is reaped: the number stays taken as long as the handle is open.
        true
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn end_group(&self) -> u32 {
        // Trees are held in other ways.
        0
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn group_is_alive(&self) -> bool {
        // The system does not report the members of a group.
        false
    }
}

/// Returns the processes at this process's console. `None` if the system does not report them.
fn console_processes() -> Option<Vec<u32>> {
    const MOST: usize = 1 << 16;
    let mut pids = vec![0; 64];
    while pids.len() <= MOST {
        // SAFETY: a live list, and its length.
        let count = unsafe { GetConsoleProcessList(pids.as_mut_ptr(), pids.len() as u32) } as usize;
        match count {
            0 => return None,
            // The list is too short: the call returned the count, and filled in nothing.
            more if more > pids.len() => pids = vec![0; more + 16],
            count => {
                pids.truncate(count);
                return Some(pids);
            }
        }
    }
    None
}

/// Returns true if a console event can reach that process.
fn is_on_console(at_console: Option<&[u32]>, pid: u32) -> bool {
    at_console.is_none_or(|pids| pids.contains(&pid))
}

impl AsHandle for super::ChildHandle {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.handle()
    }
}

/// Returns the event of the exit. The end of no child has no handle, and has happened.
pub(super) fn source(exit: &ChildHandle) -> EventSource<'_> {
    exit.process().map_or(EventSource::UNWAITABLE, EventSource::Signalled)
}

#[cfg(test)]
mod tests {
    use super::is_on_console;

    #[test]
    fn only_processes_on_this_console_can_be_asked_to_end() {
        assert!(is_on_console(Some(&[4, 8]), 8));
        assert!(!is_on_console(Some(&[4, 8]), 12));
        assert!(is_on_console(None, 12), "the system does not report it");
    }
}
