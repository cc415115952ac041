//! Waiting for a child, and stopping it.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::status::ExitStatus;

use super::Child;
use crate::drive::{Failed, Stop};
use crate::error::Error;

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
        by_its_twin!(self.wait_async());
        match self.wait_until(None)? {
            Some(status) => Ok(status),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.cannot("wait for", io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns how the child ended, or `None` while it runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let ended = self.process.try_wait().map_err(|error| self.cannot("wait for", error))?;
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
        by_its_twin!(self.try_wait_for_async(limit));
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
        by_its_twin!(self.stop_async());
        self.stop_as(Stop::by(&self.rules))
    }

    /// The same with that signal and that grace, in place of the command's. Zero kills at once.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        by_its_twin!(self.stop_with_async(signal, grace));
        self.stop_as(Stop { signal, grace })
    }

    fn stop_as(&self, how: Stop) -> Result<ExitStatus, Error> {
        let stopped = self.parked.stop(|| self.new_run(), self.process.alone(), &self.rules, how);
        stopped.map_err(|failed| self.failed(failed))?;
        self.status()
    }

    fn wait_until(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        self.close_input()?;
        if !self.needs_a_run() {
            let waited = match until {
                // Without pidfds a wait for several things would take a thread.
                None => self.process.wait().map(drop),
                until => wait::any(&mut [Slot::Event(&**self.process)], until).map(drop),
            };
            waited.map_err(|error| self.cannot("wait for", error))?;
        } else {
            let exits = self.process.alone();
            let waited = self.parked.wait(|| self.new_run(), exits, &self.rules, until);
            if !waited.map_err(|failed| self.failed(failed))? {
                return Ok(None);
            }
        }
        let status = self.try_wait()?;
        if status.is_some() {
            self.input.stop().map_err(|failed| self.failed(failed))?;
        }
        Ok(status)
    }

    /// The status of a child that has ended.
    pub(super) fn status(&self) -> Result<ExitStatus, Error> {
        let ended = self.process.wait().map_err(|error| self.cannot("wait for", error))?;
        self.input.stop().map_err(|failed| self.failed(failed))?;
        Ok(ended.status)
    }

    /// Closes the input that nobody has taken.
    pub(super) fn close_input(&self) -> Result<(), Error> {
        match &self.stdin {
            Some(stdin) => stdin.close().map_err(|error| self.cannot("close the input of", error)),
            None => Ok(()),
        }
    }

    /// True where more than the end of the child may have to be seen to.
    fn needs_a_run(&self) -> bool {
        self.rules.can_stop()
            || self.front.is_some()
            || self.input.has_feed()
            || self.parked.is_begun()
    }

    pub(super) fn failed(&self, (doing, error): Failed) -> Error {
        self.cannot(doing, error)
    }
}
