//! Waiting for a pipeline, and stopping it.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::PipelineChild;
use super::verbs::wait_for_all;
use crate::drive::{Failed, Feed, Run, Stop};
use crate::error::Error;

impl PipelineChild {
    /// Waits until all stages have ended. The first one's piped stdin, if it has not been taken, is
    /// closed first. The status is the one that [`Pipeline`](crate::Pipeline#status) tells of.
    ///
    /// The pipeline's timeouts and its cancel token hold. Streams that are piped are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for stages that may fill them.
    ///
    /// # Errors
    /// A status is lost: see [`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost). Or the wait itself failed, and
    /// the stages are as they were. A reader that failed as its input ([`Stdio::reader`](crate::Stdio::reader)) has had
    /// them killed, and this tells why.
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        by_its_twin!(self.wait_async());
        self.close_input()?;
        if self.needs_a_run() {
            self.wait_in_a_run(None)?;
        }
        self.status_of_all()
    }

    /// Returns how the pipeline ended, or `None` while a stage runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let cannot = |error| self.cannot("wait for", error);
        for exit in self.processes.iter() {
            if exit.try_wait().map_err(cannot)?.is_none() {
                return Ok(None);
            }
        }
        wait_for_all(&self.processes, self.pipefail).map(Some).map_err(cannot)
    }

    /// Waits until all stages have ended, but not longer than that; then it is `None`, and those that
    /// have not go on running. Otherwise as [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// ```
    /// use pipewright::Command;
    /// use std::time::Duration;
    /// let child = (Command::new("sleep").arg("60").owned() | Command::new("cat")).spawn()?;
    /// assert_eq!(child.try_wait_for(Duration::from_millis(10))?, None);
    /// assert!(!child.stop()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "wait_timeout")]
    pub fn try_wait_for(&self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        by_its_twin!(self.try_wait_for_async(limit));
        self.close_input()?;
        match self.wait_in_a_run(Instant::now().checked_add(limit))? {
            true => self.status_of_all().map(Some),
            false => Ok(None),
        }
    }

    /// Stops every stage, as a timeout does: sends the pipeline's
    /// [`stop_signal`](crate::Pipeline::stop_signal) to everyone whom a [`kill`](Self::kill) reaches, the
    /// last stage first, kills whoever is left after its [`kill_grace`](crate::Pipeline::kill_grace), and
    /// waits for the end. Stages that have all ended are no error, and nobody is signalled.
    ///
    /// Streams that are piped are not read meanwhile, and the input is not closed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait) and [`kill`](Self::kill).
    #[doc(alias = "terminate")]
    pub fn stop(&self) -> Result<ExitStatus, Error> {
        by_its_twin!(self.stop_async());
        self.stop_as(Stop::by(&self.rules))
    }

    /// The same with that signal and that grace, in place of the pipeline's. Zero kills at once.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        by_its_twin!(self.stop_with_async(signal, grace));
        self.stop_as(Stop { signal, grace })
    }

    fn stop_as(&self, how: Stop) -> Result<ExitStatus, Error> {
        let stopped = self.parked.stop(|| self.new_run(), &self.processes, &self.rules, how);
        stopped.map_err(|failed| self.failed(failed))?;
        self.status_of_all()
    }

    fn wait_in_a_run(&self, until: Option<Instant>) -> Result<bool, Error> {
        let waited = self.parked.wait(|| self.new_run(), &self.processes, &self.rules, until);
        waited.map_err(|failed| self.failed(failed))
    }

    /// A run that reads nothing.
    pub(super) fn new_run(&self) -> Run {
        self.run(self.input.take_feed())
    }

    pub(super) fn run(&self, feed: Option<Feed>) -> Run {
        Run::new(&self.rules, self.started, feed, [None, None])
            .of(&super::joined(&self.programs))
            .fed_by(self.input.fed())
            .traced(self.processes.trace())
    }

    /// Closes the input that nobody has taken.
    pub(super) fn close_input(&self) -> Result<(), Error> {
        match &self.stdin {
            Some(stdin) => stdin.close().map_err(|error| self.cannot("close the input of", error)),
            None => Ok(()),
        }
    }

    /// True where more than the ends of the stages may have to be seen to.
    fn needs_a_run(&self) -> bool {
        self.rules.can_stop() || self.input.has_feed() || self.parked.is_begun()
    }

    /// The status of stages that have all ended, or that there is nothing else to wait for of.
    pub(super) fn status_of_all(&self) -> Result<ExitStatus, Error> {
        let status = wait_for_all(&self.processes, self.pipefail);
        let status = status.map_err(|error| self.cannot("wait for", error))?;
        self.input.stop().map_err(|failed| self.failed(failed))?;
        Ok(status)
    }

    pub(super) fn failed(&self, (doing, error): Failed) -> Error {
        self.cannot(doing, error)
    }

    pub(super) fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::talk(&super::joined(&self.programs), doing, error)
    }
}
