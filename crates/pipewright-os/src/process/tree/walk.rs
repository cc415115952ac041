//! The walk from a root to all its descendants, on systems that list children by the parent's number.

use crate::process::child::ChildHandle;
#[cfg(target_os = "macos")]
use crate::process::libproc::{ProcessInfo, children_of};
use crate::process::member::Member;
#[cfg(target_os = "linux")]
use crate::process::procfs::{Stat as ProcessInfo, children_of};

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) {
    add_children(root.pid(), || root.owns_pid(), members);
    if let Some(tree) = root.tree() {
        tree.collect(members);
    }
    // The list grows while it is walked: a member's children come after it.
    let mut next = 0;
    while let Some(member) = members.get(next).cloned() {
        add_children(member.pid(), || member.owns_pid(), members);
        next += 1;
    }
}

/// Returns true if the root cannot start a process now: it is stopped or has ended.
pub(super) fn is_stopped_or_ended(root: &ChildHandle) -> bool {
    !root.owns_pid() || ProcessInfo::of(root.pid()).is_none_or(|info| info.is_stopped_or_ended())
}

/// Adds the children of one process as members. The system lists them by number only, so a result counts
/// only if the parent has kept its number throughout.
pub(crate) fn add_children(parent: u32, owns_pid: impl Fn() -> bool, members: &mut Vec<Member>) {
    for pid in children_of(parent) {
        let is_child = || {
            let info = ProcessInfo::of(pid);
            info.is_some_and(|info| info.parent == parent && !info.has_ended()) && owns_pid()
        };
        if let Some(member) = Member::open(pid, members, is_child) {
            members.push(member);
        }
    }
}
