//! The walk from a root to all its descendants, on systems that list children by the parent's number.

use std::io;

use crate::base::signal::Signal;
use crate::process::child::ChildHandle;
#[cfg(target_os = "macos")]
use crate::process::libproc::{ProcessInfo, children_of};
use crate::process::member::Member;
#[cfg(target_os = "linux")]
use crate::process::procfs::{Stat as ProcessInfo, children_of};

/// Adds all descendants that can be opened.
///
/// # Errors
/// The first error of one that was not found or opened for lack of room.
pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
    let mut result = add_children(root.pid(), || Ok(root.owns_pid()), members);
    if let Some(tree) = root.tree() {
        result = result.and(tree.collect(members));
    }
    // The list grows while it is walked: a member's children come after it.
    let mut next = 0;
    while let Some(member) = members.get(next).cloned() {
        result = result.and(add_children(member.pid(), || member.owns_pid(), members));
        next += 1;
    }
    result
}

/// Kills the processes below this one that have no child.
pub(super) fn kill_last() {
    let mut members = Vec::new();
    let _ = add_children(std::process::id(), || Ok(true), &mut members);
    let mut next = 0;
    while let Some(member) = members.get(next).cloned() {
        let before = members.len();
        let listed = add_children(member.pid(), || member.owns_pid(), &mut members);
        if listed.is_ok() && members.len() == before {
            let _ = member.signal(Signal::KILL);
        }
        next += 1;
    }
}

/// Returns true if the root cannot start a process now: it is stopped or has ended.
pub(super) fn is_stopped_or_ended(root: &ChildHandle) -> bool {
    let is_so = |info: Option<ProcessInfo>| info.is_none_or(|info| info.is_stopped_or_ended());
    !root.owns_pid() || find(root.pid()).is_ok_and(is_so)
}

/// Adds the children of one process as members. The system lists them by number only, so a result counts
/// only if the parent has kept its number throughout.
pub(crate) fn add_children(
    parent: u32,
    owns_pid: impl Fn() -> io::Result<bool>,
    members: &mut Vec<Member>,
) -> io::Result<()> {
    let mut result = Ok(());
    for pid in children_of(parent)? {
        let is_child = || {
            let info = find(pid)?;
            Ok(info.is_some_and(|info| info.parent == parent && !info.has_ended()) && owns_pid()?)
        };
        match Member::open(pid, members, is_child) {
            Ok(member) => members.extend(member),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

fn find(pid: u32) -> io::Result<Option<ProcessInfo>> {
    #[cfg(target_os = "macos")]
    return Ok(ProcessInfo::of(pid));
    #[cfg(target_os = "linux")]
    Ok(ProcessInfo::of(pid)?)
}
