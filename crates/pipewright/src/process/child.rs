//! `Child` in std's shape.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};

use super::command::io_error;
use crate::Signal;

/// A child that runs, or has run: [`std::process::Child`], with std's streams.
///
/// # Drop
/// The child goes on running. Unlike in std it does not become a zombie.
pub struct Child {
    /// Our end of its stdin, if that is piped.
    pub stdin: Option<ChildStdin>,
    /// Our end of its stdout, if that is piped.
    pub stdout: Option<ChildStdout>,
    /// Our end of its stderr, if that is piped.
    pub stderr: Option<ChildStderr>,
    /// Without streams. Std's child survives a panic that is caught; so does this one, whose state is behind locks and
    /// in the kernel.
    inner: AssertUnwindSafe<crate::Child>,
}

impl Child {
    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Kills the child, and only the child. One that has ended is no error.
    ///
    /// # Errors
    /// The child may not be signalled: it has become another user's.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.signal(Signal::KILL).map(drop).map_err(io_error)
    }

    /// Closes the child's stdin if that is here, waits until the child has ended, and returns its exit
    /// status; again and again if asked.
    ///
    /// # Errors
    /// Other code has waited for the child, and its status is lost.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.inner.wait().map(ExitStatus::from).map_err(io_error)
    }

    /// Returns the exit status, or `None` while the child runs.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait().map(|status| status.map(ExitStatus::from)).map_err(io_error)
    }

    /// Closes the child's stdin, reads the streams that are here to their ends, and waits for the
    /// child.
    ///
    /// # Errors
    /// The child could not be read from or waited for.
    pub fn wait_with_output(self) -> io::Result<Output> {
        crate::Child::from(self).wait_with_output().map(Output::from).map_err(io_error)
    }
}

impl From<crate::Child> for Child {
    /// Keeps the rules of the command, and makes the streams std's.
    fn from(mut child: crate::Child) -> Child {
        Child {
            stdin: child.stdin.take().map(ChildStdin::from),
            stdout: child.stdout.take().map(ChildStdout::from),
            stderr: child.stderr.take().map(ChildStderr::from),
            inner: AssertUnwindSafe(child),
        }
    }
}

impl From<Child> for crate::Child {
    fn from(child: Child) -> crate::Child {
        let Child { stdin, stdout, stderr, inner: AssertUnwindSafe(mut inner) } = child;
        inner.stdin = stdin.map(crate::ChildStdin::from);
        inner.stdout = stdout.map(crate::ChildStdout::from);
        inner.stderr = stderr.map(crate::ChildStderr::from);
        inner
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

pipewright_os::child_handle_traits!(Child, inner);
