//! Descendants through a list of all processes, held by HANDLEs.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::sync::Arc;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};

use super::Member as Public;
use crate::base::event::Source;
use crate::base::handle::size_of_u32;
use crate::base::signal::Signal;
use crate::process::child::ChildHandle;
use crate::process::open::object::Process;

#[derive(Debug)]
pub(crate) struct Member {
    pid: u32,
    process: Process,
}

impl Member {
    pub(crate) fn new(pid: u32, process: Process) -> Member {
        Member { pid, process }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

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
        // The system keeps to itself who is in which.
        None
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.process.has_ended()
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn rests(&self) -> bool {
        // Nobody can be stopped here, so there is nothing to wait for.
        true
    }
}

/// What cannot be sent.
pub(crate) fn unsupported(signal: Signal, why: &str) -> io::Error {
    let words = format!("{signal} cannot be sent to this process: {why}");
    io::Error::new(io::ErrorKind::Unsupported, words)
}

pub(super) fn source(member: &Public) -> Source<'_> {
    Source::Signalled(member.as_handle())
}

impl AsHandle for Public {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.process.as_handle()
    }
}

impl Public {
    /// Takes hold of a process that `belongs` while it is held; `None` where it is gone, has ended,
    /// is not for us to look at, or is a member already.
    pub(crate) fn open(
        pid: u32,
        members: &[Public],
        belongs: impl FnOnce(&Process) -> bool,
    ) -> Option<Public> {
        // A member keeps its number.
        if members.iter().any(|member| member.0.pid == pid) {
            return None;
        }
        let process = Process::open(pid).ok().flatten()?;
        let taken = !process.has_ended() && belongs(&process);
        taken.then(|| Public(Arc::new(Member::new(pid, process))))
    }
}

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Public>) {
    if let Some(tree) = root.tree() {
        tree.collect(members);
    }
    let Some(process) = root.0.as_process() else { return };
    let all = all_processes().unwrap_or_default();
    add_children(root.pid(), process, &all, members);
    // The list grows while it is walked: a member's children come after it.
    let mut next = 0;
    while let Some(member) = members.get(next).cloned() {
        add_children(member.0.pid, &member.0.process, &all, members);
        next += 1;
    }
}

pub(super) fn rests(_: &ChildHandle) -> bool {
    // As a member's.
    true
}

/// Takes hold of the children of one process, which is held and so keeps its number, also after it
/// has ended.
fn add_children(number: u32, parent: &Process, all: &[Listed], members: &mut Vec<Public>) {
    let Some(born) = parent.created() else { return };
    for listed in all.iter().filter(|listed| listed.parent == number && listed.pid != number) {
        // The list has numbers, and theirs may have passed to others since it was made; and an
        // orphan's parent may have had the number before ours. What the process itself says, once it
        // is held, is true: a child of that number which is younger than its owner is a child of its.
        let is_child = |process: &Process| {
            process.parent() == Some(number) && process.created().is_some_and(|it| it >= born)
        };
        if let Some(member) = Public::open(listed.pid, members, is_child) {
            members.push(member);
        }
    }
}

/// A line of the list.
struct Listed {
    pid: u32,
    parent: u32,
}

fn all_processes() -> io::Result<Vec<Listed>> {
    // SAFETY: numbers.
    let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    if list == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, for nobody else.
    let list = unsafe { OwnedHandle::from_raw_handle(list) };
    let mut entry =
        PROCESSENTRY32W { dwSize: size_of_u32::<PROCESSENTRY32W>(), ..Default::default() };
    let mut all = Vec::new();
    // SAFETY: the list is open; a live struct that tells its size.
    let mut more = unsafe { Process32FirstW(list.as_raw_handle(), &raw mut entry) };
    while more != 0 {
        all.push(Listed { pid: entry.th32ProcessID, parent: entry.th32ParentProcessID });
        // SAFETY: as above.
        more = unsafe { Process32NextW(list.as_raw_handle(), &raw mut entry) };
    }
    Ok(all)
}
