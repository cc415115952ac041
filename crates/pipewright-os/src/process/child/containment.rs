//! The hold of a child's tree, as its handle has it.

use std::fmt;

use super::ChildHandle;
use crate::process::member::Member;

/// The way in which a child is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Containment {
    /// It is not: a stop reaches the child and the descendants that can be found then.
    #[default]
    None,
    /// By a process group of its own. Who leaves the group is out of reach. On Windows a group can be
    /// asked (Ctrl-Break), and not killed: a kill reaches the descendants that can be found.
    Group,
    /// By a supervisor process that whoever loses its parent becomes a child of. Nobody gets away;
    /// who has become a user that this one may not signal is not killed.
    Supervisor,
    /// By a control group of its own (Linux, cgroup v2). Nobody gets away who may not move to
    /// another one, and all are killed at once, whatever users they have become.
    Cgroup,
    /// By a job object (Windows). Nobody gets away whom the job does not let go: see
    /// [`WindowsOptions::lets_break_away`](crate::process::spawn::WindowsOptions::lets_break_away).
    Job,
}

/// A tree that is held, beside the handle on the child that it began with.
///
/// # Drop
/// Lets go: what is held by a supervisor or a job is killed, what is held by a cgroup goes on. End it
/// with [`end`](Self::end) before.
pub trait Tree: fmt::Debug + Send + Sync {
    /// How it is held.
    fn containment(&self) -> Containment;

    /// Kills everyone in it. Returns at once; [`is_left`](Self::is_left) tells when they are gone.
    ///
    /// # Platform
    /// Linux: `cgroup.kill` (5.14), before that one by one; or the supervisor does it. Windows:
    /// `TerminateJobObject`.
    fn kill(&self);

    /// Whether anybody in it has not ended.
    ///
    /// # Platform
    /// Linux: `cgroup.events`, or the supervisor. Windows: `QueryInformationJobObject`; the messages
    /// of a job are not sure to come.
    fn is_left(&self) -> bool;

    /// Something to wait for that ends when nobody in it is left; `None` where there is none and
    /// [`is_left`](Self::is_left) has to be asked now and then.
    fn last(&self) -> Option<&Member>;

    /// Kills whoever is left, waits a moment for their end, and tells how many they were, the child
    /// that the tree began with not counted. Again and again, if asked.
    ///
    /// Who cannot be killed (stuck in the kernel) is waited for 1 s at most.
    fn end(&self) -> u32;

    /// Adds who is in the tree, beside the child that it began with, and is not a member yet.
    fn collect(&self, members: &mut Vec<Member>);

    /// Gives up the tree, and gives back a process of ours that is to be reaped, if there is one.
    fn leave(self: Box<Self>) -> Option<ChildHandle>;
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
