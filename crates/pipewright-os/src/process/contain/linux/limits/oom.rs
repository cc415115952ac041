//! The reason for a kill for lack of memory, from the counts of the groups.
//!
//! A group counts the processes in it that were killed (`oom_kill`), whichever limit was reached; and the moments in which
//! its own limit was reached (`oom`). A kill by another process changes neither.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::files;
use super::v1::V1Group;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::limits::MemoryLimit;

/// A cgroup around the tree that limits the memory.
#[derive(Debug)]
pub(super) struct Ancestor {
    pub(super) dir: OwnedFd,
    pub(super) limit_bytes: u64,
}

impl Ancestor {
    /// Returns how often its own limit was reached so far.
    pub(super) fn ooms(&self) -> u64 {
        own_ooms(self.dir.as_fd())
    }
}

/// The kills in a group, and the limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kills {
    pub(super) count: u64,
    pub(super) limit: MemoryLimit,
}

/// Returns how often the limit of that cgroup was reached, without the limits of those in it.
fn own_ooms(dir: BorrowedFd<'_>) -> u64 {
    let events = files::read(dir, "memory.events.local");
    events.ok().and_then(|text| files::value(&text, "oom")).unwrap_or(0)
}

/// Returns the kills in a cgroup of version 2, whose `memory.events` are those; `None` if there was none.
pub(super) fn in_v2(
    cgroup: &Cgroup,
    events: &str,
    limit_bytes: Option<u64>,
    ancestors: &[(&Ancestor, u64)],
) -> Option<Kills> {
    let count = files::value(events, "oom_kill").filter(|count| *count > 0)?;
    let own = own_ooms(cgroup.dir());
    let reached = files::value(events, "oom").unwrap_or(0);
    let around = ancestors.iter().find(|(ancestor, before)| ancestor.ooms() > *before);
    let limit = match (limit_bytes, around) {
        (Some(bytes), _) if own > 0 => MemoryLimit::OfCommand(bytes),
        _ if reached > own => MemoryLimit::OfDescendant,
        (_, Some((ancestor, _))) => MemoryLimit::OfAncestor(Some(ancestor.limit_bytes)),
        _ => MemoryLimit::Machine,
    };
    Some(Kills { count, limit })
}

/// Returns the kills in a group of version 1, whose `memory.oom_control` is that; `None` if there was none.
pub(super) fn in_v1(group: &V1Group, control: &str, limit_bytes: Option<u64>) -> Option<Kills> {
    let count = files::value(control, "oom_kill").filter(|count| *count > 0)?;
    // Raised if this group or one around it was out of memory, but not the whole machine.
    let raised = group.was_out_of_memory();
    let was_full = was_full(group, "memory") || was_full(group, "memory.memsw");
    let limit = match limit_bytes {
        _ if !raised => MemoryLimit::Machine,
        Some(bytes) if was_full => MemoryLimit::OfCommand(bytes),
        _ => MemoryLimit::OfAncestor(None),
    };
    Some(Kills { count, limit })
}

/// Returns true if one of the two counters of a group of version 1 has reached its limit.
fn was_full(group: &V1Group, counter: &str) -> bool {
    /// The kernel charges 64 pages at a time.
    const BATCH_BYTES: u64 = 64 * 4096;
    let number = |file: &str| files::number(group.dir(), &format!("{counter}.{file}"));
    // Since Linux 6.13 or so, the kernel does not count the failures of both counters.
    number("failcnt").is_some_and(|count| count > 0)
        || number("max_usage_in_bytes")
            .zip(number("limit_in_bytes"))
            .is_some_and(|(most, limit)| most.saturating_add(BATCH_BYTES) >= limit)
}
