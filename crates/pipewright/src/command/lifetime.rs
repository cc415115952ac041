//! Lifetimes of children: detached, foreground or killed on drop; and verbs that start without keeping a `Child`.

use std::sync::Arc;

use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::start::Group;

use super::stdio::Choice;
use super::{Command, Stdio, StdioDefault, StdioDefaults};
use crate::error::Error;
use crate::process_handle::ProcessHandle;
use crate::run::{OpenForeground, Started, on_demand};

/// The lifetime settings of a child.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lifetime {
    pub(super) kill_on_drop: Option<fn(&ChildHandle)>,
    pub(super) detached: bool,
    pub(super) foreground: Option<OpenForeground>,
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
    /// A child with its own group ([`own_group`](Self::own_group)) gets the terminal, and with it typed input,
    /// Ctrl-C and Ctrl-Z. Waiting verbs and [`Child::wait`](crate::Child::wait) take the terminal back at the end.
    /// While one of them waits, stopping the child (Ctrl-Z) also stops this process, and continuing this process
    /// (`fg`, `bg`) continues the child, so the parent shell sees one job. If another job has the terminal, the child
    /// gets it when this process is brought to the foreground. A member of a pipeline (stdout is no terminal) and a background job of a
    /// script (stdin is `/dev/null`) share the terminal with others, from which the child does not take it. Without a terminal nothing
    /// changes. [`start`](Self::start), [`start_and_forget`](Self::start_and_forget) and
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
        let Started { process, .. } = self.start_unattended(super::verbs::INHERITED)?;
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
