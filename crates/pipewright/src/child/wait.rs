//! Waiting for a child and stopping it.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::status::ExitStatus;

use super::Child;
use crate::error::Error;
use crate::run::StopRequest;

/// Waits, which several threads may call at once.
impl Child {
    /// Waits until the child has ended. First closes its piped stdin, if it was not taken, so that a child that
    /// reads to the end of its input ends.
    ///
    /// The command's timeouts and cancel token apply. Piped streams are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for a child that may fill them.
    ///
    /// # Errors
    /// The status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)), or the wait itself failed,
    /// which does not affect the child. If a [`Stdio::reader`](crate::Stdio::reader) that feeds stdin failed, the
    /// child was killed, and this returns the reader's error.
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.wait_async());
        match self.wait_until(None)? {
            Some(status) => Ok(status),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.run.cannot("wait for", io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns the exit status, or `None` while the child runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let ended =
            self.process().try_wait().map_err(|error| self.run.cannot("wait for", error))?;
        if ended.is_some() {
            drop(self.take_child_terminal());
            self.run.ended();
        }
        Ok(ended.map(|ended| ended.status))
    }

    /// Waits until the child has ended, for at most `limit`. Returns `None` if it is still running then; it keeps
    /// running. Otherwise like [`wait`](Self::wait): a piped stdin is closed first, and the command's timeouts and
    /// cancel token apply meanwhile.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    ///
    /// ```
    /// use pipewright::Command;
    /// use std::time::Duration;
    /// let child = Command::new("sleep").arg("60").spawn()?;
    /// assert_eq!(child.try_wait_for(Duration::from_millis(10))?, None);
    /// child.kill()?;
    /// assert!(child.try_wait_for(Duration::from_secs(60))?.is_some());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "wait_timeout")]
    pub fn try_wait_for(&self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        run_async_for_test!(self.try_wait_for_async(limit));
        // A limit too long for the clock means no limit.
        self.wait_until(Instant::now().checked_add(limit))
    }

    /// Stops the child as a timeout does, and waits for its end. Sends the command's
    /// [`stop_signal`](crate::Command::stop_signal) to every process that [`kill`](Self::kill) would kill, and
    /// after its [`kill_grace`](crate::Command::kill_grace) kills those that remain. If the child has already
    /// ended, that is not an error, and nothing is signalled.
    ///
    /// Meanwhile, piped streams are not read and stdin is not closed.
    ///
    /// # Platform
    /// Windows: a child that cannot receive a stop signal (see [`own_group`](crate::Command::own_group)) is killed
    /// at once.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`kill`](Self::kill).
    ///
    /// ```
    /// use pipewright::{Command, Signal};
    /// let child = Command::new("sleep").arg("60").spawn()?;
    /// assert_eq!(child.stop()?.terminating_signal(), Some(Signal::TERM));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "terminate")]
    pub fn stop(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_async());
        self.stop_as(self.run.stop_request())
    }

    /// Like [`stop`](Self::stop), with this signal and grace instead of the command's. A zero grace kills at once.
    ///
    /// # Errors
    /// Those of [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_with_async(signal, grace));
        self.stop_as(StopRequest { signal, grace })
    }

    fn stop_as(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop(request)?;
        self.status()
    }

    fn wait_until(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        self.run.close_stdin(self.stdin.as_ref())?;
        if self.run.needs_a_run() {
            if !self.run.wait(until)? {
                return Ok(None);
            }
        } else {
            let waited = match until {
                // Without pidfds, waiting for several things at once would need a thread.
                None => self.process().wait().map(drop),
                until => wait::any(&mut [Slot::Event(&**self.process())], until).map(drop),
            };
            waited.map_err(|error| self.run.cannot("wait for", error))?;
        }
        let status = self.try_wait()?;
        if status.is_some() {
            self.run.stop_input()?;
        }
        Ok(status)
    }

    /// Returns the status of a child that has ended.
    pub(super) fn status(&self) -> Result<ExitStatus, Error> {
        let ended = self.process().wait().map_err(|error| self.run.cannot("wait for", error))?;
        drop(self.take_child_terminal());
        self.run.ended();
        self.run.stop_input()?;
        Ok(ended.status)
    }
}
