//! Containment: which processes a stop reaches, and which end with this process.

use pipewright_os::process::start::{Group, parent_exit};

use super::Command;
use crate::error::Error;
use crate::run::on_demand;
use crate::tree_slot::TreeSlot;

/// The processes that a stop of a child reaches, for [`Command::contain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Contain {
    /// The child and the descendants still linked to it by parentage when it is stopped. The child itself is
    /// unchanged: it keeps the parent's process group, session and terminal.
    #[default]
    None,
    /// Gives the child its own process group ([`Command::own_group`]); stops reach all of it too. Ctrl-C at the
    /// terminal no longer reaches the child.
    Group,
    /// Everything that the child ever started, even if it tried to escape by ending its parent or starting a
    /// session. Processes that outlive the child are killed: see [`Command::contain`].
    Tree,
}

/// The processes that end with this process, for [`Command::kill_on_parent_exit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The child, but not its descendants.
    Child,
    /// The child and everything that it ever started.
    Tree,
}

/// Containment.
impl Command {
    /// Sets which processes a kill, a timeout and a cancel reach. The default is [`Contain::None`].
    ///
    /// With [`Contain::Tree`], processes that outlive the child are killed and counted (see
    /// [`leftovers_killed`](crate::Captured::leftovers_killed)). Verbs that run the command to its end kill them before
    /// they return. A [`Child`](crate::Child) kills them when it is dropped, not when `wait` returns. A tree whose handle is
    /// not dropped when this process ends lives on, unless [`kill_on_parent_exit`](Self::kill_on_parent_exit) is set.
    /// [`Child::containment`](crate::Child::containment) returns the mechanism that was used.
    ///
    /// # Platform
    /// Linux, for a tree, the first of these that works:
    /// * A cgroup of its own, if cgroup v2 lets this process make one. One write kills all of its processes. None
    ///   can escape, except one that may move itself to another cgroup (root may) or that asks systemd or a
    ///   container engine to start something.
    /// * A supervisor: two processes of a few pages between this process and the child. Both are subreapers, so
    ///   they adopt orphans. The child's parent is then the supervisor, not this process.
    /// * A process group, if the supervisor cannot run either: memory cannot be executed, a system call that it
    ///   needs is refused, or `/proc` belongs to another pid namespace.
    ///
    /// macOS: a process group.
    ///
    /// Windows: a job, which the child is in from its start. It always ends with this process; a process can leave
    /// it only with [`allow_breakaway`](Self::allow_breakaway).
    ///
    /// ```
    /// use pipewright::{Command, Contain};
    /// let capture = Command::new("sh")
    ///     .args(["-c", "(sleep 600 > /dev/null 2>&1 &); echo started"])
    ///     .contain(Contain::Tree)
    ///     .capture()?;
    /// assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("started\n", 1));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn contain(&mut self, contain: Contain) -> &mut Command {
        if self.contain == Contain::Group && self.unix.group == Group::Own {
            // `Contain::Group` made the group, so replacing it removes the group.
            self.unix.group = Group::Same;
        }
        self.contain = contain;
        if contain == Contain::Group {
            self.own_group();
        }
        self.update_hold_tree()
    }

    /// Holds the child's tree in the slot, as [`Contain::Tree`] and [`Scope::Tree`] do, at a fraction of the cost: see
    /// [`TreeSlot`]. Processes that outlive the child are killed and counted. With [`limits`](Self::limits), the slot also keeps
    /// what holds the limits for its next command, unless that command could tell: making it takes longer than the start
    /// itself.
    ///
    /// # Platform
    /// Linux: a command in a slot cannot have [`contain`](Self::contain), [`detached`](Self::detached),
    /// [`foreground`](Self::foreground), [`inherit_all`](Self::inherit_all), [`uid`](Self::uid), [`gid`](Self::gid),
    /// [`groups`](Self::groups) or [`chroot`](Self::chroot). On other systems, only `contain`, `detached` and
    /// `foreground` are refused.
    ///
    /// # Errors
    /// The start fails with [`SlotInUse`](crate::ErrorKind::SlotInUse) if the slot has another command, and with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting that the slot does not support.
    ///
    /// ```
    /// use pipewright::{Command, ErrorKind, TreeSlot};
    /// # if cfg!(not(target_os = "macos")) {
    /// let slot = TreeSlot::new()?;
    /// let child = Command::new("sleep").arg("600").contain_in(&slot).spawn()?;
    /// let error = Command::new("true").contain_in(&slot).status().unwrap_err();
    /// assert_eq!(error.kind(), &ErrorKind::SlotInUse);
    /// drop(child);
    /// assert!(Command::new("true").contain_in(&slot).status()?.success());
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn contain_in(&mut self, slot: &TreeSlot) -> &mut Command {
        self.slot = Some(slot.clone());
        self
    }

    /// Refuses settings that contradict a slot.
    pub(super) fn check_slot(&self) -> Result<(), Error> {
        let refused = [
            ("contain", self.contain != Contain::None),
            ("foreground", self.lifetime.foreground.is_some()),
            ("detached", self.lifetime.detached),
        ];
        match refused.iter().find(|(_, is_set)| *is_set && self.slot.is_some()) {
            Some((setter, _)) => {
                Err(self.misuse(&format!("`contain_in` and `{setter}` contradict each other")))
            }
            None => Ok(()),
        }
    }

    /// Kills the child when this process ends, however it ends. [`Scope::Tree`] also kills everything that the
    /// child started, and contains the tree as [`Contain::Tree`] does.
    ///
    /// # Platform
    /// Linux, [`Scope::Child`]: `PR_SET_PDEATHSIG`, set after the change of user; the child then checks that its
    /// parent has not ended meanwhile. The kernel sends the signal when the parent *thread* ends. So only the main
    /// thread starts such children directly; other threads have them started by a thread that never ends. That
    /// thread has the calling thread's users, groups, capabilities, `no_new_privs`, number of seccomp filters,
    /// security label and session keyring; there is one such thread for each combination. If the calling thread has
    /// its own Landlock domain, niceness, affinity, working directory or namespace, or as many seccomp filters but
    /// different ones, the child may not get them. In that case start from the main thread, or change all threads.
    ///
    /// Linux, [`Scope::Tree`]: a supervisor (see [`contain`](Self::contain)) that the kernel notifies when this
    /// process ends, and a second process that takes over if the first is killed. So the tree ends whichever single
    /// process is killed. A hostile command of the same user can stop the second process and then kill the first.
    ///
    /// macOS: a guard process, `/bin/sh`, waits for the end of a pipe, which the kernel closes when this process
    /// ends. It then kills the child, or for the tree the process group that the child leads. The guard is ready
    /// before the child runs. Processes that left the group survive. The whole group survives if the guard is
    /// killed, or while a fork of this process that has not called exec keeps running.
    ///
    /// Windows: a job with `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`, which the kernel closes when this process ends.
    /// For [`Scope::Child`], the child's own children are not in the job (`JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK`).
    ///
    /// # Errors
    /// The start fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the tree cannot be
    /// contained this way. There is no weaker fallback.
    pub fn kill_on_parent_exit(&mut self, scope: Scope) -> &mut Command {
        self.kill_tree_on_parent_exit = scope == Scope::Tree;
        self.unix.kill_on_parent_exit = (scope == Scope::Child).then(parent_exit);
        self.update_hold_tree()
    }

    /// Returns true if the process tree is held.
    pub(super) fn holds_tree(&self) -> bool {
        self.hold_tree.is_some() || self.slot.is_some()
    }

    pub(super) fn update_hold_tree(&mut self) -> &mut Command {
        let asked = self.contain == Contain::Tree || self.kill_tree_on_parent_exit;
        self.hold_tree = match &self.limits {
            Some(limited) => Some(limited.hold),
            None => asked.then_some(on_demand::HOLD_TREE),
        };
        self
    }
}
