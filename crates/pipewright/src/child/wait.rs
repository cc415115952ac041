//! Waiting for a child, and stopping it.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::status::ExitStatus;

use super::Child;
use crate::error::Error;
use crate::run::StopRequest;

/// Waits of one thread, or of several at once.
impl Child {
    /// Waits until the child has ended. Its piped stdin, if it has not been taken, is closed first,
    /// so that a child which reads to the end of its input finds one.
    ///
    /// The command's timeouts and its cancel token hold. Streams that are piped are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for a child that may fill them.
    ///
    /// # Errors
    /// Its status is lost: see [`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost). Or the wait itself failed, and
    /// the child is as it was. A reader that failed as its input ([`Stdio::reader`](crate::Stdio::reader)) has had the
    /// child killed, and this tells why.
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.wait_async());
        match self.wait_until(None)? {
            Some(status) => Ok(status),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.run.cannot("wait for", io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns how the child ended, or `None` while it runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let ended =
            self.process().try_wait().map_err(|error| self.run.cannot("wait for", error))?;
        Ok(ended.map(|ended| ended.status))
    }

    /// Waits until the child has ended, but not longer than that; then it is `None`, and the child goes
    /// on running. Otherwise as [`wait`](Self::wait): its piped stdin is closed first, and the command's
    /// timeouts and its cancel token hold while this waits.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
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
        // A limit so long that the clock cannot hold its end is none.
        self.wait_until(Instant::now().checked_add(limit))
    }

    /// Stops the child, as a timeout does: sends the command's
    /// [`stop_signal`](crate::Command::stop_signal) to everyone whom a [`kill`](Self::kill) reaches, kills
    /// whoever is left after its [`kill_grace`](crate::Command::kill_grace), and waits for the end. A
    /// child that has ended is no error, and nobody is signalled.
    ///
    /// Streams that are piped are not read meanwhile, and its stdin is not closed.
    ///
    /// # Platform
    /// Windows: a child that cannot hear a stop signal (see [`own_group`](crate::Command::own_group)) is
    /// killed at once.
    ///
    /// # Errors
    /// As [`wait`](Self::wait) and [`kill`](Self::kill).
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

    /// The same with that signal and that grace, in place of the command's. Zero kills at once.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_with_async(signal, grace));
        self.stop_as(StopRequest { signal, grace })
    }

    fn stop_as(&self, how: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop(how)?;
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
                // Without pidfds a wait for several things would take a thread.
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
        self.run.stop_input()?;
        Ok(ended.status)
    }
}
