//! `Child` in std's shape.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};

use super::command::io_error;
use crate::Signal;

/// A running child, or one that has ended: [`std::process::Child`], with std's streams.
///
/// # Drop
/// The child keeps running. Unlike in std, it does not become a zombie.
pub struct Child {
    /// The parent's end of the child's stdin, if piped.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's stderr, if piped.
    pub stderr: Option<ChildStderr>,
    /// The child, without its streams. `UnwindSafe` like std's `Child`: its state is behind locks and in the
    /// kernel.
    inner: AssertUnwindSafe<crate::Child>,
}

impl Child {
    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Kills the child alone. A child that has already ended is not an error.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.signal(Signal::KILL).map(drop).map_err(io_error)
    }

    /// Closes the child's stdin if it was not taken, waits until the child has ended, and returns its exit status.
    /// Later calls return the same status.
    ///
    /// # Errors
    /// Other code waited for the child, and its status is lost.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.inner.wait().map(ExitStatus::from).map_err(io_error)
    }

    /// Returns the exit status, or `None` while the child runs.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait().map(|status| status.map(ExitStatus::from)).map_err(io_error)
    }

    /// Closes the child's stdin, reads the streams that were not taken to the end, and waits for the child.
    ///
    /// # Errors
    /// The child could not be read from or waited for.
    pub fn wait_with_output(self) -> io::Result<Output> {
        crate::Child::from(self).wait_with_output().map(Output::from).map_err(io_error)
    }
}

impl From<crate::Child> for Child {
    /// Converts the streams to std's. The command's rules still apply.
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
