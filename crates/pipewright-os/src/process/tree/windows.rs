//! Descendants found through a list of all processes, held by HANDLEs.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};

use crate::base::handle::size_of_u32;
use crate::process::child::ChildHandle;
use crate::process::member::Member;
use crate::process::process_object::ProcessObject;

pub(super) fn kill_last() {}

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
    if let Some(tree) = root.tree() {
        tree.collect(members)?;
    }
    let Some(process) = root.0.as_process() else { return Ok(()) };
    let all = all_processes()?;
    add_children(root.pid(), process, &all, members);
    // The list grows while it is walked: a member's children come after it.
    let mut next = 0;
    while let Some(member) = members.get(next).cloned() {
        add_children(member.pid(), member.process(), &all, members);
        next += 1;
    }
    Ok(())
}

pub(super) fn is_stopped_or_ended(_: &ChildHandle) -> bool {
    // As for a member.
    true
}

/// Adds the children of one process as members. Its handle is open, so it keeps its number even after it
/// has ended.
fn add_children(
    number: u32,
    parent: &ProcessObject,
    all: &[ProcessEntry],
    members: &mut Vec<Member>,
) {
    let Some(parent_start) = parent.created() else { return };
    for listed in all.iter().filter(|listed| listed.parent == number && listed.pid != number) {
        // The list has numbers, which may have passed to other processes since it was made. And an orphan's
        // parent may have had the number before this one. But the answers of a process with an open handle
        // are true: if it names that number as its parent and is younger than the owner of the number, it
        // is its child.
        let is_child = |process: &ProcessObject| {
            process.parent() == Some(number)
                && process.created().is_some_and(|it| it >= parent_start)
        };
        if let Some(member) = Member::open(listed.pid, members, is_child) {
            members.push(member);
        }
    }
}

/// An entry of the list.
struct ProcessEntry {
    pid: u32,
    parent: u32,
}

fn all_processes() -> io::Result<Vec<ProcessEntry>> {
    // SAFETY: numbers.
    let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    if list == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, and owned nowhere else.
    let list = unsafe { OwnedHandle::from_raw_handle(list) };
    let mut entry =
        PROCESSENTRY32W { dwSize: size_of_u32::<PROCESSENTRY32W>(), ..Default::default() };
    let mut all = Vec::new();
    // SAFETY: the list is open; a live struct with its size set.
    let mut more = unsafe { Process32FirstW(list.as_raw_handle(), &raw mut entry) };
    while more != 0 {
        all.push(ProcessEntry { pid: entry.th32ProcessID, parent: entry.th32ParentProcessID });
        // SAFETY: as above.
        more = unsafe { Process32NextW(list.as_raw_handle(), &raw mut entry) };
    }
    Ok(all)
}
