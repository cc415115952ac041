//! Waiting for a pipeline, and stopping it.

use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::PipelineChild;
use super::verbs::wait_for_all;
use crate::error::Error;
use crate::run::StopRequest;

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
        run_async_for_test!(self.wait_async());
        self.run.close_stdin(self.stdin.as_ref())?;
        if self.run.needs_a_run() {
            self.run.wait(None)?;
        }
        self.status_of_all()
    }

    /// Returns how the pipeline ended, or `None` while a stage runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let cannot = |error| self.run.cannot("wait for", error);
        for child in self.run.processes().iter() {
            if child.try_wait().map_err(cannot)?.is_none() {
                return Ok(None);
            }
        }
        wait_for_all(self.run.processes(), self.pipefail).map(Some).map_err(cannot)
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
        run_async_for_test!(self.try_wait_for_async(limit));
        self.run.close_stdin(self.stdin.as_ref())?;
        match self.run.wait(Instant::now().checked_add(limit))? {
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
        run_async_for_test!(self.stop_async());
        self.stop_as(self.run.stop_request())
    }

    /// The same with that signal and that grace, in place of the pipeline's. Zero kills at once.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_with_async(signal, grace));
        self.stop_as(StopRequest { signal, grace })
    }

    fn stop_as(&self, how: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop(how)?;
        self.status_of_all()
    }

    /// Returns the status of stages that have all ended. It waits for those that have not.
    pub(super) fn status_of_all(&self) -> Result<ExitStatus, Error> {
        let status = wait_for_all(self.run.processes(), self.pipefail);
        let status = status.map_err(|error| self.run.cannot("wait for", error))?;
        self.run.stop_input()?;
        Ok(status)
    }
}
