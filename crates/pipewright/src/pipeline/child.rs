//! A started pipeline, in the shape of a child.

use std::ffi::OsString;

use pipewright_os::base::signal::Signal;

use super::end::pipeline_output;
use super::start::StartedStages;
use super::{PipelineOutput, join_names};
use crate::error::Error;
use crate::run::{Children as _, Collect, HeldTerminal, Processes, Run, RunSettings, SpawnedRun};
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
