//! Holds of a whole tree: everything that a child ever starts, whatever it does to get away.

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "linux")]
use linux as imp;

use std::fmt;

use crate::tree::Member;

/// Whom a child is held together with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contain {
    /// With nobody: nothing about the child is changed.
    #[default]
    None,
    /// With everything it ever starts.
    Tree {
        /// The tree ends when this process does, however that ends.
        dies_with_us: bool,
    },
}

/// How a child is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Containment {
    /// It is not: a stop reaches the child and the descendants that can be found then.
    #[default]
    None,
    /// By a process group of its own. Who leaves the group is out of reach.
    Group,
    /// By a supervisor process that whoever loses its parent becomes a child of. Nobody gets away.
    Supervisor,
    /// By a control group of its own (Linux, cgroup v2). Nobody gets away, and all are killed at
    /// once, whatever users they have become.
    Cgroup,
    /// By a job object (Windows). Nobody gets away.
    Job,
}

/// A tree that is held, beside the handle on the child that it began with.
///
/// # Drop
/// Lets go: what is held by a supervisor is killed, what is held by a cgroup goes on. End it with
/// [`Tree::end`] before.
#[derive(Debug)]
pub struct Tree(pub(crate) imp::Tree);

impl Tree {
    /// How it is held.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment()
    }

    /// Kills everyone in it. Returns at once; [`is_left`](Self::is_left) tells when they are gone.
    ///
    /// # Platform
    /// Linux: `cgroup.kill` (5.14), before that one by one; or the supervisor does it.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Whether anybody in it has not ended.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.0.is_left()
    }

    /// Something to wait for that ends when nobody in it is left; `None` where there is none and
    /// [`is_left`](Self::is_left) has to be asked now and then.
    #[must_use]
    pub fn last(&self) -> Option<&Member> {
        self.0.last()
    }

    /// Kills whoever is left, waits a moment for their end, and tells how many they were, the child
    /// that the tree began with not counted. Again and again, if asked.
    ///
    /// Who cannot be killed (stuck in the kernel) is waited for 1 s at most.
    pub fn end(&self) -> u32 {
        self.0.end()
    }
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
