//! The containment of a child's tree.

use std::fmt;
use std::io;

use super::ChildHandle;
use crate::process::limits::TreeResources;
use crate::process::member::Member;

/// The way in which a child is contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Containment {
    /// Not contained: a stop reaches the child and the descendants that can be found at that moment.
    #[default]
    None,
    /// A process group of its own. A process that leaves the group is out of reach. On Windows a group can
    /// be asked to end (Ctrl-Break) but not killed: a kill reaches the descendants that can be found.
    Group,
    /// A supervisor process, which adopts every descendant that loses its parent. No descendant escapes;
    /// one that runs as a user that this process may not signal is not killed.
    Supervisor,
    /// A control group of its own (Linux, cgroup v2). No process escapes unless it may move to another
    /// cgroup, and all are killed at once, whatever users they run as.
    Cgroup,
    /// A job object (Windows). No process escapes unless the job lets it: see
    /// [`WindowsOptions::allow_breakaway`](crate::process::start::WindowsOptions::allow_breakaway).
    Job,
}

/// A contained tree, beside the handle of the child at its root.
///
/// # Drop
/// Releases the tree: a supervisor or a job kills it, but the processes of a cgroup continue to
/// run. Call [`end`](Self::end) first to end them.
pub trait ContainedTree: fmt::Debug + Send + Sync {
    /// Returns the way in which the tree is contained.
    fn containment(&self) -> Containment;

    /// Kills every process in the tree. Returns at once; [`is_alive`](Self::is_alive) shows when they have
    /// ended.
    ///
    /// # Platform
    /// Linux: `cgroup.kill` (5.14), before that one by one; or the supervisor kills. Windows:
    /// `TerminateJobObject`.
    fn kill(&self);

    /// Returns true if a process in the tree has not ended.
    ///
    /// # Platform
    /// Linux: `cgroup.events`, or the supervisor. Windows: `QueryInformationJobObject`; messages of a job
    /// are not guaranteed to arrive.
    fn is_alive(&self) -> bool;

    /// Returns the process to wait for, which ends when no other process of the tree is left. If it is
    /// `None`, the caller has to poll [`is_alive`](Self::is_alive).
    fn last(&self) -> Option<&Member>;

    /// Kills the processes that are left, waits a moment for their end, and returns their number, not
    /// counting the child at the root. Later calls return the same.
    ///
    /// The wait for a process that cannot be killed (stuck in the kernel) takes at most 1 s.
    fn end(&self) -> u32;

    /// Adds the processes of the tree, without the child at its root, that are not members yet.
    ///
    /// # Errors
    /// There is no room to list or to open them all.
    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()>;

    /// Returns the resources that the tree used, and the limits in force; `None` if it was started without limits.
    /// Final after [`end`](Self::end).
    fn resources(&self) -> Option<TreeResources> {
        None
    }

    /// Releases the tree, and returns a process of this library that has to be reaped, if there is one.
    fn release(self: Box<Self>) -> Option<ChildHandle>;
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Containment::None => "none",
            Containment::Group => "group",
            Containment::Supervisor => "supervisor",
            Containment::Cgroup => "cgroup",
            Containment::Job => "job",
        })
    }
}
