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
use crate::run::{OwnedProcess, RunSettings, SpawnedRun, Started};
use crate::{ChildStderr, ChildStdin, ChildStdout};
#[cfg(feature = "tokio")]
pub(crate) use task::async_waits;

/// A running child, or one that has ended.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// As in std, the child keeps running. Unlike in std, it does not become a zombie: a background thread, started for
/// the first such child, reaps it when it ends.
///
/// If the child's tree is contained ([`Contain::Tree`](crate::Contain::Tree)), the drop kills the child and its tree,
/// and waits for them for at most 1 s. With [`kill_on_drop`](crate::Command::kill_on_drop), the drop kills the child.
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's stdin, if piped. Dropping it closes the child's input.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's stderr, if piped.
    pub stderr: Option<ChildStderr>,
    run: SpawnedRun<OwnedProcess>,
}

impl Child {
    pub(crate) fn new(started: Started, program: &OsStr, options: &RunSettings) -> Child {
        let Started { process, ends, at, foreground } = started;
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(process, ends, program.to_owned(), at, foreground, options);
        Child { stdin, stdout, stderr, run }
    }

    /// Returns the process id. The name is std's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process().pid()
    }

    /// Returns the process id, like [`id`](Self::id).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Returns the handle that the other crates of this project wait for, together with their own sources.
    #[doc(hidden)]
    #[must_use]
    pub fn child_handle(&self) -> &ChildHandle {
        self.process()
    }

    /// Kills the child, the process group that it leads, if any, and the descendants that can be found. A child
    /// that has already ended is not an error. The child still has to be waited for, or dropped.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it.
    #[doc(alias = "terminate")]
    pub fn kill(&self) -> Result<(), Error> {
        self.run.kill()
    }

    /// Returns the mechanism that contains the child. It decides which processes [`kill`](Self::kill), a timeout and a
    /// cancel reach.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process().containment()
    }

    /// Sends a signal to the child alone. Returns `false` if it has already ended.
    ///
    /// A later process with the same pid never gets the signal.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it.
    /// [`Unsupported`](crate::ErrorKind::Unsupported): Windows cannot send this signal to the child (see
    /// [`own_group`](crate::Command::own_group)); it can always send `KILL`.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        self.process().signal(signal).map_err(|error| self.run.cannot("signal", error))
    }

    fn process(&self) -> &OwnedProcess {
        self.run.processes()
    }
}

impl From<Child> for ProcessHandle {
    /// Keeps the process and drops the rest: streams that were not taken are closed, and timeouts no longer apply.
    /// Input that was given to the command is still fed.
    fn from(child: Child) -> ProcessHandle {
        let (process, program) = child.run.into_parts();
        ProcessHandle::started(process, &program)
    }
}
