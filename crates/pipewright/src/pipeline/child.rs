//! A started pipeline, in the shape of a child: waiting for it and stopping it.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::end::pipeline_output;
use super::start::StartedStages;
use super::verbs::wait_for_all;
use super::{PipelineOutput, join_names};
use crate::error::Error;
use crate::run::{
    Children as _, Collect, HeldTerminal, Processes, Run, RunSettings, SpawnedRun, StopRequest,
};
use crate::{ChildStderr, ChildStdin, ChildStdout};

/// A running pipeline, or one that has ended.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// Like dropping a [`Child`](crate::Child), for each stage: the stages keep running and are reaped in the
/// background when they end. If a tree is contained or any stage is killed on drop, all stages are killed.
#[derive(Debug)]
pub struct PipelineChild {
    /// The parent's end of the first stage's stdin, if piped. Dropping it closes the input.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the last stage's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the pipe that all stages with a piped stderr share.
    pub stderr: Option<ChildStderr>,
    pub(super) run: SpawnedRun<Processes>,
    programs: Vec<OsString>,
    pub(super) pipefail: bool,
}

impl PipelineChild {
    pub(super) fn new(
        started: StartedStages,
        options: &RunSettings,
        pipefail: bool,
    ) -> PipelineChild {
        let StartedStages { programs, processes, ends, at, foreground } = started;
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(processes, ends, join_names(&programs), at, foreground, options);
        PipelineChild { stdin, stdout, stderr, run, programs, pipefail }
    }

    /// Returns the process ids of the stages, from first to last.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.run.processes().handles().iter().map(|child| child.pid()).collect()
    }

    /// Waits until all stages have ended, and reads the piped streams meanwhile. Closes a piped stdin first.
    ///
    /// The pipeline's timeouts, limits and cancel token apply.
    ///
    /// # Errors
    /// A stage could not be read from or waited for; none is then running.
    pub fn wait_with_output(self) -> Result<PipelineOutput, Error> {
        run_async_for_test!(self.wait_with_output_async());
        let (mut run, programs, pipefail) = self.into_run();
        let whole = run.finish()?;
        pipeline_output(programs, run.children(), whole, pipefail)
    }

    /// Returns the run that reads the streams.
    pub(super) fn into_run(self) -> (Run, Vec<OsString>, bool) {
        let PipelineChild { stdin, stdout, stderr, run, programs, pipefail } = self;
        // No stage has a terminal.
        let terminal = HeldTerminal::default();
        (run.into_run((stdin, [stdout, stderr]), terminal, Collect::All), programs, pipefail)
    }

    /// Kills every stage, the process groups that stages lead, and the descendants that can be found. Stages that
    /// have already ended are not an error. The pipeline still has to be waited for, or dropped.
    ///
    /// # Errors
    /// A stage changed its user, so this process may not signal it. The other stages are killed.
    pub fn kill(&self) -> Result<(), Error> {
        self.run.kill()
    }

    /// Sends a signal to every stage and nothing else, last stage first. Returns `false` if all have already ended.
    ///
    /// # Errors
    /// A stage changed its user, so this process may not signal it; the stages after it were signalled.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut reached = false;
        for child in self.run.processes().handles().iter().rev() {
            reached |= child.signal(signal).map_err(|error| self.run.cannot("signal", error))?;
        }
        Ok(reached)
    }
}

impl PipelineChild {
    /// Waits until all stages have ended. First closes a piped stdin that was not taken. Returns the
    /// [status of the pipeline](crate::Pipeline#status).
    ///
    /// The pipeline's timeouts and cancel token apply. Piped streams are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for stages that may fill them.
    ///
    /// # Errors
    /// A status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)), or the wait itself failed, which
    /// does not affect the stages. If a [`Stdio::reader`](crate::Stdio::reader) that feeds stdin failed, the stages
    /// were killed, and this returns the reader's error.
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.wait_async());
        self.run.close_stdin(self.stdin.as_ref())?;
        if self.run.needs_a_run() {
            self.run.wait(None)?;
        }
        self.status_of_all()
    }

    /// Returns the exit status, or `None` while a stage runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let cannot = |error| self.run.cannot("wait for", error);
        for child in self.run.processes().handles() {
            if child.try_wait().map_err(cannot)?.is_none() {
                return Ok(None);
            }
        }
        self.run.ended();
        wait_for_all(self.run.processes().handles(), self.pipefail).map(Some).map_err(cannot)
    }

    /// Waits until all stages have ended, for at most `limit`. Returns `None` if any is still running then; those
    /// keep running. Otherwise like [`wait`](Self::wait).
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
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

    /// Stops every stage as a timeout does, and waits for the end. Sends the pipeline's
    /// [`stop_signal`](crate::Pipeline::stop_signal) to every process that [`kill`](Self::kill) would kill, last
    /// stage first, and after its [`kill_grace`](crate::Pipeline::kill_grace) kills those that remain. If all
    /// stages have already ended, that is not an error, and nothing is signalled.
    ///
    /// Meanwhile, piped streams are not read and the input is not closed.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`kill`](Self::kill).
    #[doc(alias = "terminate")]
    pub fn stop(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_async());
        self.stop_as(self.run.stop_request())
    }

    /// Like [`stop`](Self::stop), with this signal and grace instead of the pipeline's. A zero grace kills at once.
    ///
    /// # Errors
    /// Those of [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_with_async(signal, grace));
        self.stop_as(StopRequest { signal, grace })
    }

    fn stop_as(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop(request)?;
        self.status_of_all()
    }

    /// Returns the status of the pipeline. Waits for stages that have not ended.
    pub(super) fn status_of_all(&self) -> Result<ExitStatus, Error> {
        let status = wait_for_all(self.run.processes().handles(), self.pipefail);
        let status = status.map_err(|error| self.run.cannot("wait for", error))?;
        self.run.stop_input()?;
        Ok(status)
    }
}
