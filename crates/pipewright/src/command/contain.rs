//! How far a child is held, and by whom it is outlived.

use pipewright_os::process::spawn::{Group, parent_exit};

use super::Command;
use crate::run::on_demand;

/// What a stop of a child reaches, for [`Command::contain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Contain {
    /// The child, and those of its descendants that can be found when it is stopped. Nothing about
    /// the child is changed: it keeps our process group, session and terminal.
    #[default]
    None,
    /// As well everyone in a process group of its own: [`Command::own_group`]. Ctrl-C at the terminal no longer reaches it.
    Group,
    /// Whatever the child has ever started, and however that tried to get away: by ending its
    /// parent, by a session of its own. When the handle on the child goes, what is left of the tree
    /// is killed.
    Tree,
}

/// What ends when this process does, for [`Command::kill_on_parent_exit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The child, and not what it has started.
    Child,
    /// The child and whatever it has ever started.
    Tree,
}

/// How far the child is held.
impl Command {
    /// What a kill, a timeout and a cancel reach; [`Contain::None`] where it is not set.
    ///
    /// With [`Contain::Tree`], what the child leaves behind when it has ended is killed and counted
    /// (see [`leftovers_killed`](crate::Captured::leftovers_killed)): by the verbs that wait when
    /// they return, by a [`Child`](crate::Child) when it is dropped.
    /// [`Child::containment`](crate::Child::containment) tells how the child is really held.
    ///
    /// # Platform
    /// Linux, for a tree, best first:
    /// * a control group of its own, where cgroup v2 lets this process make one: not a process
    ///   gets away that may not itself move to another cgroup (root may, and whoever asks systemd
    ///   or a container engine to start something), and one write kills them all;
    /// * a supervisor, where not: two processes of a few pages between us and the child, which are
    ///   subreapers and so become the parent of whoever loses its own. The child's parent is then
    ///   the supervisor and not this process;
    /// * a process group, where memory cannot be executed either, one of the calls that this takes
    ///   is refused, or `/proc` is not that of our pid namespace.
    ///
    /// macOS: a process group.
    ///
    /// Windows: a job that the child is born in. It always ends with this process, and lets nobody out
    /// but by [`allow_breakaway`](Self::allow_breakaway).
    ///
    /// ```
    /// use pipewright::{Command, Contain};
    /// let capture = Command::new("sh")
    ///     .args(["-c", "setsid sleep 600 > /dev/null 2>&1 & echo started"])
    ///     .contain(Contain::Tree)
    ///     .capture()?;
    /// assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("started\n", 1));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn contain(&mut self, contain: Contain) -> &mut Command {
        if self.contain == Contain::Group && self.unix.group == Group::Own {
            // It came with that, and goes with it.
            self.unix.group = Group::Same;
        }
        self.contain = contain;
        if contain == Contain::Group {
            self.own_group();
        }
        self.hold_if_asked()
    }

    /// Kills the child when this process ends, however it ends. [`Scope::Tree`] kills whatever the
    /// child has started too, and holds the tree as [`Contain::Tree`] does.
    ///
    /// # Platform
    /// Linux, for the child: `PR_SET_PDEATHSIG`, set after the change of user and checked against a
    /// parent that has ended meanwhile. Where it is not the main thread that starts them, such children
    /// are started from a thread that never ends, because the kernel means the thread when it says
    /// parent. That thread has the users, groups, capabilities, `no_new_privs`, number of seccomp filters,
    /// security label and session keyring of the calling one, and there is one for each kind of caller.
    /// It may have another Landlock domain, other filters of the same number, another niceness, affinity,
    /// working directory or namespace, if the calling thread has one of its own: start from the main
    /// thread then, or change all threads.
    ///
    /// Linux, for the tree: a supervisor (see [`contain`](Self::contain)) that is told by the end
    /// of this process, and a second process that does the work if the first is killed. So no one
    /// process can be killed that the tree outlives. A command of the same user that is out to get away
    /// can stop the second one and then kill the first.
    ///
    /// macOS: a guard process, `/bin/sh`, waits for the end of a pipe, which the kernel closes when
    /// this process ends, and kills the child, or the process group that it leads and that is its
    /// tree there. It is in place before the child runs. Who has left the group goes on, and so does
    /// all of it where somebody kills the guard, or where a fork of this process that has not become
    /// another program goes on.
    ///
    /// Windows: a job with `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`, which the kernel closes with this
    /// process. For the child alone, one that its own children are not in
    /// (`JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) at the start, where the tree
    /// cannot be held so: there is no second best.
    pub fn kill_on_parent_exit(&mut self, scope: Scope) -> &mut Command {
        self.ends_with_us = scope == Scope::Tree;
        self.unix.kill_on_parent_exit = (scope == Scope::Child).then(parent_exit);
        self.hold_if_asked()
    }

    /// Returns true if a tree of processes is held.
    pub(super) fn holds_tree(&self) -> bool {
        self.hold_tree.is_some()
    }

    fn hold_if_asked(&mut self) -> &mut Command {
        let asked = self.contain == Contain::Tree || self.ends_with_us;
        self.hold_tree = asked.then_some(on_demand::HOLD_TREE);
        self
    }
}
