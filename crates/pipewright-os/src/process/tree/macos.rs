//! Descendants found through `libproc`.

pub(super) use super::walk::collect;
use crate::process::child::ChildHandle;
use crate::process::libproc::{ProcessInfo, children_of};
use crate::process::member::Member;

/// Returns true if the root cannot start a process now: it is stopped or has ended.
pub(super) fn is_stopped_or_ended(root: &ChildHandle) -> bool {
    !root.owns_pid() || ProcessInfo::of(root.pid()).is_none_or(|state| state.is_stopped_or_ended())
}

/// Adds the children of one process as members. A result counts only if the parent has kept its number
/// throughout.
pub(super) fn add_children(parent: u32, owns_pid: impl Fn() -> bool, members: &mut Vec<Member>) {
    for pid in children_of(parent) {
        let is_child = || {
            let state = ProcessInfo::of(pid);
            state.is_some_and(|state| state.parent == parent && !state.has_ended()) && owns_pid()
        };
        if let Some(member) = Member::open(pid, members, is_child) {
            members.push(member);
        }
    }
}
