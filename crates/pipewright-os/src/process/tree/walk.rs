//! The walk from a root to all its descendants, on systems that list children by the parent's number.

use super::imp::add_children;
use crate::process::child::ChildHandle;
use crate::process::member::Member;

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
