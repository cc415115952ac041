//! Descendants found through `/proc`, held by pidfds.

use std::io;

pub(super) use super::walk::is_stopped_or_ended;
use crate::process::child::ChildHandle;
use crate::process::member::Member;
use crate::process::procfs::{Stat, proc_is_ours};

pub(super) fn collect(root: &ChildHandle, members: &mut Vec<Member>) -> io::Result<()> {
    if proc_is_ours()? { super::walk::collect(root, members) } else { Ok(()) }
}

pub(super) fn kill_last() {
    if proc_is_ours().unwrap_or(false) {
        super::walk::kill_last();
    }
}

/// Returns true if the process with that number is a child of the other.
pub(crate) fn is_child_of(pid: u32, parent: &Member) -> io::Result<bool> {
    Ok(Stat::of(pid)?.is_some_and(|stat| stat.parent == parent.pid()) && parent.owns_pid()?)
}
