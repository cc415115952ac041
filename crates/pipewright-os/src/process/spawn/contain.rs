//! The hold of a child's tree, as a plan asks for it.

use super::{Plan, SpawnError};
use crate::process::child::ChildHandle;

/// The hold that a child's tree is to have.
///
/// It leads to the code by a pointer, so that programs which never ask for it do not contain it.
#[derive(Debug, Clone, Copy)]
pub struct Contain {
    pub(crate) start: Start,
    pub(crate) dies_with_us: bool,
}

/// Starts a child so.
pub(crate) type Start = fn(&Plan<'_>, dies_with_us: bool) -> Result<ChildHandle, SpawnError>;

impl Contain {
    /// Holds the child and everything it ever starts. With `dies_with_us`, the tree ends when this
    /// process does, however that ends.
    ///
    /// # Platform
    /// Linux, best first: a cgroup, a supervisor, a process group; with `dies_with_us` one of the first
    /// two, or an error.
    ///
    /// macOS has nothing but a process group, so whoever leaves it is out of reach. With `dies_with_us`
    /// a guard is in it: a `/bin/sh` that waits for the end of a pipe, which the kernel closes when
    /// this process ends, and then kills the group. It is in place before the child runs. It also kills
    /// what is left of the group when the [`ChildHandle`] of the child is dropped. A fork of this process that
    /// has not become another program holds the pipe too. Who kills the guard keeps the group. For a
    /// child in a session of its own or in the group of others: `Unsupported`. Windows: a job that the
    /// child is born in (`PROC_THREAD_ATTRIBUTE_JOB_LIST`), inside of any that this process is in, with
    /// `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`: it always ends with this process.
    #[must_use]
    pub fn tree(dies_with_us: bool) -> Contain {
        Contain { start: super::start_held, dies_with_us }
    }
}
