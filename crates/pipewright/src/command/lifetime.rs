//! Children that outlive us, or end with their handle; and the verbs that keep none of them.

use std::sync::Arc;

use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::spawn::Group;

use super::stdio::Choice;
use super::{Command, Stdio, StdioDefault, StdioDefaults};
use crate::error::Error;
use crate::process_handle::ProcessHandle;
use crate::run::{OpenForeground, Started, on_demand};

/// The lifetime of a child.
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
};

impl Command {
    /// Lets the child outlive us: it has a session of its own, without a terminal, so that neither
    /// our end, nor a signal to our group (Ctrl-C), nor the end of the terminal reaches it. Where no
    /// stdio is set it is null instead of ours.
    ///
    /// A stop (a timeout, [`Child::kill`](crate::Child::kill)) reaches its whole group.
    ///
    /// # Platform
    /// Unix: `setsid`. A service manager that ends all of a service's processes (systemd's
    /// `KillMode=control-group`) ends this one too. Windows: `CREATE_NO_WINDOW |
    /// CREATE_NEW_PROCESS_GROUP`, a console of its own without a window, so that console programs which it starts
    /// open none. Where this process is in a job that ends with it, so does the child:
    /// see [`breakaway_from_job`](Self::breakaway_from_job).
    ///
    /// # Errors
    /// Of the verb: together with [`kill_on_parent_exit`](Self::kill_on_parent_exit), or with the
    /// group of somebody else, it is a contradiction.
    ///
    /// ```
    /// use pipewright::{Command, ProcessHandle};
    /// let pid = Command::new("sleep").arg("60").detached().start_and_forget()?;
    /// // Later, perhaps from another program:
    /// # let shown = pid;
    /// ProcessHandle::open(pid)?.kill()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn detached(&mut self) -> &mut Command {
        self.own_session();
        self.lifetime.detached = true;
        self
    }

    /// Makes the child the terminal's foreground job for as long as it runs, as a shell does.
    ///
    /// A child with a group of its own ([`own_group`](Self::own_group)) is given the terminal, and
    /// so gets what is typed there, Ctrl-C and Ctrl-Z included; the verbs that wait, and
    /// [`Child::wait`](crate::Child::wait), take it back at the end. While one of them waits, a stop
    /// of the child (Ctrl-Z) stops this process too, and its continuation (`fg`, `bg`) continues
    /// the child: whoever has started us sees one job. Without a terminal, or where another job has
    /// it, nothing is done. The verbs that keep no [`Child`](crate::Child) and do not wait
    /// ([`start`](Self::start), [`start_and_forget`](Self::start_and_forget), [`exec`](Self::exec)) refuse it.
    ///
    /// # Platform
    /// Unix: `tcsetpgrp` in the child, before it is loaded (macOS: here, before the child runs);
    /// `SIGTSTP` to this process, which does nothing where nobody could continue it.
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

    /// Kills the child when its [`Child`](crate::Child), [`Lines`](crate::Lines),
    /// [`Events`](crate::Events), [`ProcessHandle`] or [`PipelineChild`](crate::PipelineChild) is
    /// dropped before it has ended.
    ///
    /// The kill reaches whom [`Child::kill`](crate::Child::kill) reaches. The drop then waits for
    /// the child for at most 100 ms, which is longer than a kill takes; one that is stuck in the
    /// kernel is reaped in the background. A child that has become another user's, and that we may
    /// therefore not kill, goes on running. When this process is itself killed nothing is dropped:
    /// see [`kill_on_parent_exit`](Self::kill_on_parent_exit).
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo ready; sleep 60"]).kill_on_drop();
    /// let first = command.lines()?.next().unwrap()?;
    /// assert_eq!(first.text, "ready");
    /// // Nobody sleeps any more.
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn kill_on_drop(&mut self) -> &mut Command {
        self.lifetime.kill_on_drop = Some(on_demand::KILL_ON_DROP);
        self
    }

    /// Starts the command and keeps nothing of it but its number. stdio is null where nothing else
    /// is set.
    ///
    /// The child goes on running when this process ends; [`detached`](Self::detached) keeps
    /// Ctrl-C and the end of the terminal from it as well. It does not become a zombie: a background
    /// thread reaps it. The number is its own until then, and afterwards may be anybody's.
    ///
    /// # Errors
    /// The child could not be started; there is then none.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): a stream that would pass through us (piped,
    /// tee, bytes, a reader), a timeout, a cancel token, [`foreground`](Self::foreground) or
    /// [`kill_on_drop`](Self::kill_on_drop) is set, and there would be nobody to see to it.
    ///
    /// ```
    /// let pid = pipewright::Command::new("true").start_and_forget()?;
    /// assert_ne!(pid, 0);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn start_and_forget(&mut self) -> Result<u32, Error> {
        if self.lifetime.kill_on_drop.is_some() {
            return Err(self.misuse("nothing is kept of it, so it cannot be killed on drop"));
        }
        if self.holds_tree() {
            return Err(self.misuse("nothing is kept of it, so its tree cannot be held"));
        }
        let Started { process, .. } = self.start_unattended(NULL)?;
        Ok(process.pid())
    }

    /// Starts the command and gives a light handle on the process, without streams: see
    /// [`ProcessHandle::start`].
    ///
    /// # Errors
    /// As [`ProcessHandle::start`].
    pub fn start(&mut self) -> Result<ProcessHandle, Error> {
        let Started { process, .. } = self.start_unattended(super::verbs::OURS)?;
        Ok(ProcessHandle::started(Arc::new(process), &self.program))
    }

    /// Starts a child that gets no help from us while it runs.
    fn start_unattended(&self, defaults: StdioDefaults) -> Result<Started, Error> {
        self.check_unattended()?;
        self.start_child(defaults)
    }

    /// Refuses what takes somebody on our side while the command runs.
    pub(super) fn check_unattended(&self) -> Result<(), Error> {
        let streams = [&self.stdin, &self.stdout, &self.stderr];
        for (name, stream) in ["stdin", "stdout", "stderr"].into_iter().zip(streams) {
            if stream.as_ref().is_some_and(Stdio::passes_through_us) {
                let words =
                    format!("its {name} would pass through us, and nobody is left for that");
                return Err(self.misuse(&words));
            }
        }
        if self.options.rules.can_stop() {
            return Err(self.misuse("it has a timeout or a cancel token, and nobody to heed it"));
        }
        if self.lifetime.foreground.is_some() {
            let words =
                "it would be in front of the terminal, and nobody is left to take that back";
            return Err(self.misuse(words));
        }
        Ok(())
    }

    /// Refuses options that contradict each other, and returns the defaults for the streams of a detached child.
    pub(super) fn detached_defaults(
        &self,
        defaults: StdioDefaults,
    ) -> Result<StdioDefaults, Error> {
        if self.unix.kill_on_parent_exit.is_some() || self.ends_with_us {
            return Err(self.misuse("it is detached, so it cannot be killed when we end"));
        }
        if self.holds_tree() {
            return Err(self.misuse("it is detached, so its tree cannot be held by us"));
        }
        if self.unix.group != Group::Session {
            return Err(self.misuse("it is detached, so it cannot be in another group"));
        }
        let not_ours =
            |usual| if matches!(usual, StdioDefault::Inherit) { StdioDefault::Null } else { usual };
        let StdioDefaults { stdin, stdout, stderr } = defaults;
        Ok(StdioDefaults {
            stdin: not_ours(stdin),
            stdout: not_ours(stdout),
            stderr: not_ours(stderr),
        })
    }
}

impl Stdio {
    /// Whether it takes somebody on our side who reads or writes.
    fn passes_through_us(&self) -> bool {
        matches!(
            self.0,
            Choice::Piped(_)
                | Choice::Tee(_)
                | Choice::TeeTarget(..)
                | Choice::Bytes(_)
                | Choice::Reader(_)
        )
    }
}

/// The start by a handle.
impl ProcessHandle {
    /// Starts the command. The child uses our stdio where nothing else is set.
    ///
    /// Nothing of this crate stands between the child and its streams then: they can be ours,
    /// null, files and handles.
    ///
    /// # Errors
    /// The child could not be started; there is then none.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): a stream that would pass through us (piped, tee,
    /// bytes, a reader), a timeout, a cancel token or [`foreground`](Command::foreground) is set on
    /// the command, and there would be nobody to see to it.
    pub fn start(command: &mut Command) -> Result<ProcessHandle, Error> {
        command.start()
    }
}
