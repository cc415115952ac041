//! The limits of a child, and the resources that its tree has used so far.

use pipewright_os::process::limits::{HeldLimits, OutOfMemory, TreeResources};
use pipewright_os::process::usage::TreeUsage;

use super::Child;

/// Limits and resources of a child with [limits](crate::Command::limits). All of these return `None` for other children. Each
/// call asks the kernel, and costs a few reads of files.
impl Child {
    /// Returns the limits in force, and those that are missing.
    #[must_use]
    pub fn limits(&self) -> Option<HeldLimits> {
        self.resources().map(|resources| resources.held)
    }

    /// Returns the resources that all processes of the child have used so far.
    ///
    /// ```
    /// use pipewright::{Command, Limits, Stdio};
    /// let limits = Limits::new().pids_max(50).best_effort();
    /// let child = Command::new("sort").limits(limits).stdin(Stdio::piped()).spawn();
    /// if let Ok(child) = child {
    ///     let used = child.tree_usage().and_then(|usage| usage.peak_pids);
    ///     println!("{used:?} processes at most");
    /// }
    /// ```
    #[must_use]
    pub fn tree_usage(&self) -> Option<TreeUsage> {
        self.resources().map(|resources| resources.usage)
    }

    /// Returns the facts about a kill for lack of memory, if the kernel has killed a process of the child so far. The child itself
    /// may run on, and [`wait`](Self::wait) returns its exit status as that of any other.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        self.resources()?.out_of_memory
    }

    fn resources(&self) -> Option<TreeResources> {
        self.process().tree()?.resources()
    }
}
