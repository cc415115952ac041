//! The processes that a command's run holds, limits and stops, and those that end with this process or live on; a slot
//! that holds the tree of one command after another.

use std::sync::Arc;

use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::limits::TreeLimits;
use pipewright_os::process::start::{self, Group, parent_exit};

use super::aside::StartAside;
use super::stdio::Choice;
use super::{Command, Stdio, StdioDefault, StdioDefaults};
use crate::error::{Error, could_not_create_slot};
use crate::process_handle::ProcessHandle;
use crate::reaper;
use crate::run::on_demand::{self, HoldTree};
use crate::run::{OpenForeground, Started};

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
    /// they return. A [`Child`](crate::Child) kills them when it is dropped, not when `wait` returns. A tree whose
    /// handle is not dropped when this process ends lives on, unless [`kill_on_parent_exit`](Self::kill_on_parent_exit)
    /// is set. [`Child::containment`](crate::Child::containment) returns the mechanism that was used.
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
    /// [`TreeSlot`]. Processes that outlive the child are killed and counted. With [`limits`](Self::limits), the slot
    /// also keeps what holds the limits for its next command, unless that command could tell: making it takes longer
    /// than the start itself.
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
        self.options.see_to_end();
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
        match refused.iter().find(|(_, is_set)| *is_set) {
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
        self.options.see_to_end();
        self
    }
}

/// The limits of a command's tree, and the code that holds them.
pub(super) struct LimitedTree {
    pub(super) limits: TreeLimits,
    /// A pointer, for program size: see [`on_demand`](crate::run::on_demand).
    pub(super) hold: HoldTree,
}

impl Command {
    /// Limits the resources of everything that the command starts, all processes together, and measures what they use.
    ///
    /// Includes [`Contain::Tree`](crate::Contain::Tree): processes that outlive the child are killed. A process of the
    /// tree that the kernel kills for lack of memory makes the run end as
    /// [`Outcome::OutOfMemory`](crate::Outcome::OutOfMemory), also if it was a descendant and the command itself exited
    /// with code 0. [`Captured::limits`](crate::Captured::limits) has the limits in force, and
    /// [`Captured::tree_usage`](crate::Captured::tree_usage) the resources that were used. `docs/limits.md` in the
    /// repository says which limits can be had where.
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
    /// The start fails with [`ErrorKind::LimitUnavailable`](crate::ErrorKind::LimitUnavailable), which names the limit,
    /// the reason and a remedy, if a limit cannot be held here and [`best_effort`](crate::Limits::best_effort) is not
    /// set; and with [`InvalidInput`](crate::ErrorKind::InvalidInput) for a limit of 0.
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

/// The lifetime settings of a child.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lifetime {
    pub(super) kill_on_drop: Option<fn(&ChildHandle)>,
    pub(super) detached: bool,
    pub(super) foreground: Option<OpenForeground>,
    pub(super) aside: Option<StartAside>,
}

const NULL: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Null,
    stdout: StdioDefault::Null,
    stderr: StdioDefault::Null,
    caller_reads: false,
};

impl Command {
    /// Lets the child outlive this process. It gets its own session without a terminal, so it survives the end of
    /// this process, signals to this process's group (Ctrl-C) and the end of the terminal. Streams that are not set
    /// are null instead of inherited.
    ///
    /// A stop (a timeout, [`Child::kill`](crate::Child::kill)) reaches the child's whole group.
    ///
    /// # Platform
    /// Unix: `setsid`. A service manager that kills all processes of a service (systemd's `KillMode=control-group`)
    /// also kills this one. Windows: `CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP`. The child has a console without
    /// a window, so console programs that it starts open no window either. If this process is in a job that ends
    /// with it, the child ends too: see [`breakaway_from_job`](Self::breakaway_from_job).
    ///
    /// # Errors
    /// The verb fails if [`kill_on_parent_exit`](Self::kill_on_parent_exit),
    /// [`contain(Contain::Tree)`](Self::contain) or another process group is set too: they contradict `detached`.
    ///
    /// ```
    /// use pipewright::{Command, ProcessHandle};
    /// let pid = Command::new("sleep").arg("60").detached().start_and_forget()?;
    /// // Later, perhaps in another program:
    /// # let shown = pid;
    /// ProcessHandle::open(pid)?.kill()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn detached(&mut self) -> &mut Command {
        self.own_session();
        self.lifetime.detached = true;
        self
    }

    /// Makes the child the terminal's foreground job while it runs, as a shell does.
    ///
    /// A child with its own group ([`own_group`](Self::own_group)) gets the terminal, and with it typed input, Ctrl-C
    /// and Ctrl-Z. Waiting verbs and [`Child::wait`](crate::Child::wait) take the terminal back at the end. While one
    /// of them waits, stopping the child (Ctrl-Z) also stops this process, and continuing this process (`fg`, `bg`)
    /// continues the child, so the parent shell sees one job. If another job has the terminal, the child gets it when
    /// this process is brought to the foreground. A member of a pipeline (stdout is no terminal) and a background job
    /// of a script (stdin is `/dev/null`) share the terminal with others, from which the child does not take it.
    /// Without a terminal nothing changes. [`start`](Self::start), [`start_and_forget`](Self::start_and_forget) and
    /// [`exec`](Self::exec), which return no [`Child`](crate::Child) and do not wait, refuse this setting.
    ///
    /// # Platform
    /// Unix: `tcsetpgrp` in the child, before the program is loaded (macOS: in this process, before the child
    /// runs); `SIGTSTP` to this process, which has no effect if no shell could continue it.
    ///
    /// ```no_run
    /// # use pipewright::Command;
    /// let status = Command::new("vi").own_group().foreground().status()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn foreground(&mut self) -> &mut Command {
        self.options.see_to_end();
        self.lifetime.foreground = Some(on_demand::OPEN_FOREGROUND);
        self
    }

    /// Kills the child when its [`Child`](crate::Child), [`Lines`](crate::Lines), [`Events`](crate::Events),
    /// [`ProcessHandle`] or [`PipelineChild`](crate::PipelineChild) is dropped before it has ended.
    ///
    /// Kills what [`Child::kill`](crate::Child::kill) kills. The drop then waits for the child for at most 100 ms,
    /// longer than a kill takes; a child that is stuck in the kernel is reaped in the background. A child that
    /// changed its user, so that this process may not kill it, keeps running. Nothing is dropped if this process
    /// itself is killed: see [`kill_on_parent_exit`](Self::kill_on_parent_exit).
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo ready; sleep 60"]).kill_on_drop();
    /// let first = command.lines()?.next().unwrap()?;
    /// assert_eq!(first.text, "ready");
    /// // The shell and its sleep are killed.
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn kill_on_drop(&mut self) -> &mut Command {
        self.lifetime.kill_on_drop = Some(on_demand::KILL_ON_DROP);
        self
    }

    /// Starts the command and returns only its pid. Streams that are not set are null.
    ///
    /// The child keeps running when this process ends; [`detached`](Self::detached) also protects it from Ctrl-C
    /// and the end of the terminal. It does not become a zombie: a background thread reaps it. After that, another
    /// process may get the pid.
    ///
    /// # Errors
    /// The child could not be started; none is running. [`InvalidInput`](crate::ErrorKind::InvalidInput): the
    /// command has a setting that needs this process after the start: a stream that passes through it (piped, tee,
    /// bytes, a reader), a timeout, a cancel token, [`foreground`](Self::foreground),
    /// [`kill_on_drop`](Self::kill_on_drop) or a contained tree.
    ///
    /// ```
    /// let pid = pipewright::Command::new("true").start_and_forget()?;
    /// assert_ne!(pid, 0);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn start_and_forget(&mut self) -> Result<u32, Error> {
        if self.lifetime.kill_on_drop.is_some() {
            return Err(self
                .misuse("`start_and_forget` returns no handle, so `kill_on_drop` has no effect"));
        }
        if self.holds_tree() {
            return Err(self
                .misuse("`start_and_forget` returns no handle, so the tree cannot be contained"));
        }
        let Started { process, .. } = self.start_unattended(NULL)?;
        Ok(process.pid())
    }

    /// Starts the command and returns a light handle to the process, without streams: see [`ProcessHandle::start`].
    ///
    /// # Errors
    /// Those of [`ProcessHandle::start`].
    pub fn start(&mut self) -> Result<ProcessHandle, Error> {
        let Started { process, .. } = self.start_unattended(super::start::INHERITED)?;
        Ok(ProcessHandle::started(Arc::new(process), &self.program))
    }

    /// Starts a child that needs nothing from this process while it runs.
    fn start_unattended(&self, defaults: StdioDefaults) -> Result<Started, Error> {
        self.check_unattended()?;
        self.start_child(defaults)
    }

    /// Refuses settings that need this process while the command runs.
    pub(super) fn check_unattended(&self) -> Result<(), Error> {
        self.refuse_pty_for("needs a call that reads the terminal: use `spawn` or `status`")?;
        let streams = [&self.stdin, &self.stdout, &self.stderr];
        for (name, stream) in ["stdin", "stdout", "stderr"].into_iter().zip(streams) {
            if stream.as_ref().is_some_and(Stdio::passes_through_parent) {
                let words = format!(
                    "its {name} would pass through this process: use a file, a handle, null or inherit"
                );
                return Err(self.misuse(&words));
            }
        }
        if self.options.rules.can_stop() {
            return Err(self.misuse(
                "a timeout or cancel token needs a call that waits: use `spawn` or `status`",
            ));
        }
        if self.lifetime.foreground.is_some() {
            let words = "`foreground` needs a call that waits: use `spawn` or `status`";
            return Err(self.misuse(words));
        }
        Ok(())
    }

    /// Refuses contradicting options, and returns the stream defaults of a detached child.
    pub(super) fn detached_defaults(
        &self,
        defaults: StdioDefaults,
    ) -> Result<StdioDefaults, Error> {
        if self.unix.kill_on_parent_exit.is_some() || self.kill_tree_on_parent_exit {
            return Err(self.misuse("`detached` and `kill_on_parent_exit` contradict each other"));
        }
        if self.holds_tree() {
            return Err(
                self.misuse("`detached` and `contain(Contain::Tree)` contradict each other")
            );
        }
        if self.unix.group != Group::Session {
            return Err(self.misuse("`detached` starts a session, so no process group can be set"));
        }
        let or_null = |default| match default {
            StdioDefault::Inherit => StdioDefault::Null,
            default => default,
        };
        let StdioDefaults { stdin, stdout, stderr, caller_reads } = defaults;
        Ok(StdioDefaults {
            stdin: or_null(stdin),
            stdout: or_null(stdout),
            stderr: or_null(stderr),
            caller_reads,
        })
    }
}

impl Stdio {
    /// Returns true if this process has to read or write the stream.
    fn passes_through_parent(&self) -> bool {
        matches!(
            self.0,
            Choice::Piped(_)
                | Choice::Tee(_)
                | Choice::TeeTarget(..)
                | Choice::TeeWith(_)
                | Choice::TeeMap(_)
                | Choice::Bytes(_)
                | Choice::BytesOf(_)
                | Choice::Reader(_)
        )
    }
}

/// Starting a process by a command.
impl ProcessHandle {
    /// Starts the command. By default the child inherits stdio.
    ///
    /// The streams can be inherited, null, files or other handles; no data passes through this process.
    ///
    /// # Errors
    /// The child could not be started; none is running. [`InvalidInput`](crate::ErrorKind::InvalidInput): the
    /// command has a setting that needs this process after the start: a stream that passes through it (piped, tee,
    /// bytes, a reader), a timeout, a cancel token or [`foreground`](Command::foreground).
    pub fn start(command: &mut Command) -> Result<ProcessHandle, Error> {
        command.start()
    }
}

/// A holder of process trees, for many commands one after another: see
/// [`Command::contain_in`](crate::Command::contain_in).
///
/// [`Contain::Tree`](crate::Contain::Tree) makes what holds the tree for every command; on Linux that costs more than
/// a short command. A slot makes it once. A batch that runs 8 commands at a time needs 8 slots.
///
/// The trees end with this process, as with [`Scope::Tree`](crate::Scope::Tree): however it ends, no process of a tree
/// is left. Nothing of one command is left when the next one starts.
///
/// A slot is in use until the verb that ran the command has returned. For a [`Child`](crate::Child) or a
/// [`ProcessHandle`](crate::ProcessHandle), it is in use until that is dropped. A clone is the same slot.
///
/// # Platform
/// Linux: a supervisor and a second process that takes over if the first is killed, of a few pages each. They run as
/// long as the slot. The supervisor starts the commands, at this process's request, and is their parent. So the
/// commands get this process's environment, working directory and handles as they are at their start, but the file mode
/// mask, the limits, the priority, the affinity, the namespaces, the cgroup, the session and the ignored signals as
/// they were when the slot was made. If the users, the groups, the capabilities, `no_new_privs`, the mode of seccomp,
/// the secure bits, the session keyring or the root directory of the calling thread differ, the next start makes new
/// processes for the slot. A further seccomp filter, a Landlock domain or another label is not noticed: make a new
/// slot. If one of the two processes is killed, the running command's tree is killed, and the next start makes new
/// ones. A slot whose commands have [`limits`](crate::Command::limits) keeps up to 30 handles, if less than a quarter
/// of their numbers are in use.
///
/// macOS: `Unsupported`.
///
/// Windows: a job object, which the commands are in from their start.
///
/// # Drop
/// Ends the processes that hold the trees, and waits for them for at most 1 s. If a command runs in the slot, that
/// happens when the command's handle is dropped. A fork of this process that has not called exec cannot use the slot,
/// and its drop of the slot ends nothing.
///
/// ```
/// use pipewright::{Command, TreeSlot};
/// # if cfg!(not(target_os = "macos")) {
/// let slot = TreeSlot::new()?;
/// for _ in 0..3 {
///     let capture = Command::new("sh")
///         .args(["-c", "(sleep 600 > /dev/null 2>&1 &); echo started"])
///         .contain_in(&slot)
///         .capture()?;
///     assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("started\n", 1));
/// }
/// # }
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TreeSlot(start::TreeSlot);

impl TreeSlot {
    /// Makes a slot.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported): this machine cannot end a tree with this process, as for
    /// [`Scope::Tree`](crate::Scope::Tree). [`Limit`](crate::ErrorKind::Limit): there is no room for another process or
    /// handle.
    pub fn new() -> Result<TreeSlot, Error> {
        start::TreeSlot::new(reaper::reap).map(TreeSlot).map_err(could_not_create_slot)
    }

    /// Returns true if another command can start in the slot. False: it is in use, or a process of its last command
    /// does not end, such as one that is stuck in the kernel, or that has become another user's. Never waits.
    ///
    /// ```
    /// use pipewright::{Command, TreeSlot};
    /// # if cfg!(not(target_os = "macos")) {
    /// let slot = TreeSlot::new()?;
    /// let child = Command::new("sleep").arg("600").contain_in(&slot).spawn()?;
    /// assert!(!slot.is_free());
    /// child.kill()?;
    /// child.wait()?;
    /// drop(child);
    /// # while !slot.is_free() { std::thread::yield_now() }
    /// assert!(slot.is_free());
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.0.is_free()
    }

    /// Returns the mechanism that contains the commands.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment()
    }

    pub(crate) fn as_os(&self) -> &start::TreeSlot {
        &self.0
    }
}
