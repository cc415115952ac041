//! Descendants found through `/proc`, held by pidfds.

use crate::process::child::ChildHandle;
use crate::process::member::Member;
use crate::process::procfs::{Stat, children_of, proc_is_ours};

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) {
    if proc_is_ours() {
        super::walk::collect(root, members);
    }
}

/// Returns true if the root cannot start a process now: it is stopped or has ended.
pub(super) fn is_stopped_or_ended(root: &ChildHandle) -> bool {
    !root.owns_pid() || Stat::of(root.pid()).is_none_or(|stat| stat.is_stopped_or_ended())
}

/// Adds the children of one process as members. `/proc` has only numbers, so a result counts only if the
/// parent has kept its number throughout.
pub(crate) fn add_children(parent: u32, owns_pid: impl Fn() -> bool, members: &mut Vec<Member>) {
    for pid in children_of(parent) {
        let is_child = || {
            let stat = Stat::of(pid);
            stat.is_some_and(|stat| stat.parent == parent && !stat.has_ended()) && owns_pid()
        };
        if let Some(member) = Member::open(pid, members, is_child) {
            members.push(member);
        }
    }
}

/// Returns true if the process with that number is a child of the other.
pub(crate) fn is_child_of(pid: u32, parent: &Member) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.parent == parent.pid()) && parent.owns_pid()
}
