//! Limits on the resources of a command's process tree.

use pipewright_os::process::limits::TreeLimits;

use super::Command;
use crate::run::on_demand::{self, HoldTree};

/// The limits of a command's tree, and the code that holds them.
pub(super) struct LimitedTree {
    pub(super) limits: TreeLimits,
    /// A pointer, for program size: see [`on_demand`](crate::run::on_demand).
    pub(super) hold: HoldTree,
}

impl Command {
    /// Limits the resources of everything that the command starts, all processes together, and measures what they use.
    ///
    /// Includes [`Contain::Tree`](crate::Contain::Tree): processes that outlive the child are killed. A process of the tree
    /// that the kernel kills for lack of memory makes the run end as
    /// [`Outcome::OutOfMemory`](crate::Outcome::OutOfMemory), also if it was a descendant and the command itself exited with
    /// code 0. [`Captured::limits`](crate::Captured::limits) has the limits in force, and
    /// [`Captured::tree_usage`](crate::Captured::tree_usage) the resources that were used. `docs/limits.md` in the repository says which
    /// limits can be had where.
    ///
    /// # Platform
    /// Linux, for each limit the first of these that has its controller:
    /// * The cgroup that contains the tree (cgroup v2). It is made in the cgroup of this process, or in one around it
    ///   that this process may use and that is not limited itself. If this process, with the processes that it has
    ///   started, is alone in its cgroup, it moves to a cgroup `pipewright-hosts` in it first: a cgroup that limits
    ///   others must have no process. If this process is in a scope that systemd has not delegated, such as that of a
    ///   terminal, systemd's manager of the user (of the system, for root) is asked, once, for a scope
    ///   `pipewright-*.scope`, and moves this process there. The first start waits
    ///   for that, at most 5 s; it fails after 2 s if no answer comes.
    /// * A group of cgroup v1, which the child joins before its program is loaded.
    ///
    /// macOS: none can be held. Windows: the limits of the job; Wine holds none of them.
    ///
    /// # Errors
    /// The start fails with [`ErrorKind::LimitUnavailable`](crate::ErrorKind::LimitUnavailable), which names the limit, the
    /// reason and a remedy, if a limit cannot be held here and [`best_effort`](crate::Limits::best_effort) is not set; and
    /// with [`InvalidInput`](crate::ErrorKind::InvalidInput) for a limit of 0.
    ///
    /// ```
    /// use pipewright::{Command, ErrorKind, Limits, Outcome};
    /// let mut tail = Command::new("tail");
    /// // Reads a line without an end, and keeps all of it.
    /// tail.arg("/dev/zero").limits(Limits::new().memory_max(64 << 20).memory_swap_max(0));
    /// match tail.capture() {
    ///     Ok(capture) => assert!(matches!(capture.outcome, Outcome::OutOfMemory(_))),
    ///     Err(error) => println!("{error}"), // ... memory_max cannot be held: the cgroup ...; try: systemd-run ...
    /// }
    /// ```
    #[doc(alias = "cgroup")]
    #[doc(alias = "MemoryMax")]
    pub fn limits(&mut self, limits: TreeLimits) -> &mut Command {
        let hold = on_demand::HOLD_LIMITED_TREE;
        self.limits = Some(Box::new(LimitedTree { limits, hold }));
        self.update_hold_tree()
    }
}
