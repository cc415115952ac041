//! Containment of a child's tree, as a plan requests it.

use super::{Plan, SpawnError};
use crate::process::child::ChildHandle;

/// The containment to start a child with.
///
/// It refers to the code by a pointer, so that programs which never use it do not contain that code.
#[derive(Debug, Clone, Copy)]
pub struct Contain {
    pub(crate) start: StartFn,
    pub(crate) ends_with_parent: bool,
    /// The limits of a slot's tree.
    pub(crate) slot_limits: Option<super::imp::SlotLimits>,
}

/// A function that starts a contained child.
pub(crate) type StartFn = fn(&Plan<'_>, ends_with_parent: bool) -> Result<ChildHandle, SpawnError>;

impl Contain {
    /// Contains the child and everything it ever starts. With `ends_with_parent`, the tree ends when this
    /// process does, however that ends.
    ///
    /// # Platform
    /// Linux, best first: a cgroup, a supervisor, a process group; with `ends_with_parent` one of the first
    /// two, or an error.
    ///
    /// macOS has only a process group, so a process that leaves it is out of reach. With `ends_with_parent` the
    /// group also has a guard: a `/bin/sh` that waits for the end of a pipe, which the kernel closes when
    /// this process ends, and then kills the group. The guard runs before the child does. It also kills
    /// what is left of the group when the [`ChildHandle`] of the child is dropped. A fork of this process
    /// that has not executed another program holds the pipe too. If the guard is killed, the group
    /// continues to run. For a child in a session of its own or in another group: `Unsupported`.
    ///
    /// Windows: a job that the child is born in (`PROC_THREAD_ATTRIBUTE_JOB_LIST`), inside any job that
    /// this process is in, with `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`: it always ends with this process.
    #[must_use]
    pub fn tree(ends_with_parent: bool) -> Contain {
        Contain { start: super::start_contained, ends_with_parent, slot_limits: None }
    }

    /// Contains the child as [`tree`](Self::tree) does, with the limits of the plan. In a slot, the slot contains it.
    ///
    /// # Platform
    /// Linux: the cgroup of the tree, if the controllers of the limits can be used in cgroup v2; else groups of cgroup
    /// v1, beside the containment. macOS: `Unsupported`. Windows: the limits of the job.
    #[must_use]
    pub fn limited_tree(ends_with_parent: bool) -> Contain {
        let slot_limits = super::imp::SLOT_LIMITS;
        Contain { start: super::start_limited, ends_with_parent, slot_limits }
    }
}
