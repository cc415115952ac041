//! A started pipeline, in the shape of a child: waiting for it and stopping it.

use std::ffi::OsString;

use super::end::pipeline_output;
use super::start::StartedStages;
use super::{PipelineOutput, join_names};
use crate::error::Error;
use crate::run::{Children as _, Collect, Processes, Run, RunSettings, SpawnedRun, spawned_verbs};
#[cfg(feature = "tokio")]
use crate::runtime::check_runtime_to_wait;
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
    run: SpawnedRun<Processes>,
    programs: Vec<OsString>,
    pipefail: bool,
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
    fn into_run(self) -> (Run, Vec<OsString>, bool) {
        let PipelineChild { stdin, stdout, stderr, run, programs, pipefail } = self;
        // No stage has a terminal.
        (run.into_run((stdin, [stdout, stderr]), None, Collect::All), programs, pipefail)
    }

    /// Like [`wait_with_output`](Self::wait_with_output), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the pipeline.
    ///
    /// # Errors
    /// Those of [`wait_with_output`](Self::wait_with_output); `Unsupported` outside a tokio runtime. The pipeline
    /// is then dropped, not killed.
    #[cfg(feature = "tokio")]
    pub async fn wait_with_output_async(self) -> Result<PipelineOutput, Error> {
        check_runtime_to_wait(self.run.program())?;
        let (mut run, programs, pipefail) = self.into_run();
        let whole = run.finish_async().await?;
        pipeline_output(programs, run.children(), whole, pipefail)
    }
}

spawned_verbs!(PipelineChild);
