//! A started child, in std's shape.

mod read_all;
#[cfg(feature = "tokio")]
mod task;
mod wait;

use std::ffi::OsStr;

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::{ChildHandle, Containment};

use crate::error::Error;
use crate::process_handle::ProcessHandle;
use crate::run::{Options, Process, SpawnedRun, Started};
use crate::{ChildStderr, ChildStdin, ChildStdout};
#[cfg(feature = "tokio")]
pub(crate) use task::async_waits;

/// A child that runs, or has run.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// As in std, the child goes on running. Unlike in std it does not become a zombie: a background
/// thread, started for the first such child, reaps it when it ends.
///
/// A child whose tree is held ([`Contain::Tree`](crate::Contain::Tree)) is killed, with its tree,
/// and waited for as long as that can be expected to take.
/// [`kill_on_drop`](crate::Command::kill_on_drop) ends it instead.
#[derive(Debug)]
pub struct Child {
    /// Our end of its stdin, where that is piped. Dropping it ends the child's input.
    pub stdin: Option<ChildStdin>,
    /// Our end of its stdout, where that is piped.
    pub stdout: Option<ChildStdout>,
    /// Our end of its stderr, where that is piped.
    pub stderr: Option<ChildStderr>,
    run: SpawnedRun<Process>,
}

impl Child {
    pub(crate) fn new(started: Started, program: &OsStr, options: &Options) -> Child {
        let Started { process, ends, at, foreground } = started;
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(process, ends, program.to_owned(), at, foreground, options);
        Child { stdin, stdout, stderr, run }
    }

    /// The process id. The name is std's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process().pid()
    }

    /// The process id: as [`id`](Self::id).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// What other crates of the family wait for together with their own sources.
    #[doc(hidden)]
    #[must_use]
    pub fn child_handle(&self) -> &ChildHandle {
        self.process()
    }

    /// Kills the child, the group it leads and the descendants that can be found. A child that has
    /// ended is no error. The child still has to be waited for, or dropped.
    ///
    /// # Errors
    /// The child may not be signalled by us: it has become another user's.
    #[doc(alias = "terminate")]
    pub fn kill(&self) -> Result<(), Error> {
        self.run.kill()
    }

    /// How the child is held: what [`kill`](Self::kill), a timeout and a cancel reach.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process().containment()
    }

    /// Sends the child a signal, and only the child. `false`: it has ended already.
    ///
    /// Never reaches another process that was given the same number since.
    ///
    /// # Errors
    /// The child has become another user's.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        self.process().signal(signal).map_err(|error| self.run.cannot("signal", error))
    }

    fn process(&self) -> &Process {
        self.run.processes()
    }
}

impl From<Child> for ProcessHandle {
    /// Keeps the process and nothing else of the child: streams that were not taken are closed, and
    /// its timeouts are forgotten. Input that came with the command goes on being fed.
    fn from(child: Child) -> ProcessHandle {
        let (process, program) = child.run.into_parts();
        ProcessHandle::started(process, &program)
    }
}
