//! The async verbs of a pipeline.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::end::pipeline_output;
use super::{Pipeline, PipelineCapture, PipelineChild, PipelineOutput};
use crate::child::async_waits;
use crate::command::{CAPTURED, INHERITED, STDERR_TEED, StdioDefaults, async_verbs};
use crate::error::{Error, FailedOperation};
use crate::events::AsyncEvents;
use crate::lines::AsyncLines;
use crate::output::{check_success, check_tee};
use crate::run::{Collect, StopRequest};
use crate::runtime::{check_runtime, check_runtime_to_wait};

async_verbs!(Pipeline<'_>, PipelineOutput, PipelineCapture);

impl Pipeline<'_> {
    async fn finish_async(
        &mut self,
        defaults: StdioDefaults,
        collect: Collect,
    ) -> Result<PipelineOutput, Error> {
        check_runtime(&self.name(), FailedOperation::Start)?;
        let (run, programs) = self.start(defaults)?.into_run(&self.options, collect);
        let mut run = run.into_future();
        let whole = (&mut run).await?;
        pipeline_output(programs, run.children(), whole, self.pipefail)
    }
}

async_waits!(PipelineChild);

/// Async waits for tokio tasks, with the feature `tokio`.
impl PipelineChild {
    async fn wait_until_async(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.run.close_stdin(self.stdin.as_ref())?;
        match self.run.wait_async(until).await? {
            true => self.status_of_all().map(Some),
            false => Ok(None),
        }
    }

    async fn stop_as_async(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop_async(request).await?;
        self.status_of_all()
    }

    /// Like [`wait_with_output`](Self::wait_with_output), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the pipeline.
    ///
    /// # Errors
    /// Those of [`wait_with_output`](Self::wait_with_output); `Unsupported` outside a tokio runtime. The pipeline
    /// is then dropped, not killed.
    pub async fn wait_with_output_async(self) -> Result<PipelineOutput, Error> {
        check_runtime_to_wait(self.run.program())?;
        let (mut run, programs, pipefail) = self.into_run();
        let whole = run.finish_async().await?;
        pipeline_output(programs, run.children(), whole, pipefail)
    }
}
