//! The verbs of a pipeline, for tasks.

use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::verbs::Seen;
use super::{Pipeline, PipelineCapture, PipelineChild, PipelineOutput, joined};
use crate::command::{CAPTURED, Keep, OURS, REMEMBERED, StdioDefaults};
use crate::drive::{Reach, Stop};
use crate::error::{Doing, Error};
use crate::output::{check_tee, judge};
use crate::task::{AsyncEvents, AsyncLines, check_runtime, check_runtime_to_wait};

/// For tasks of a tokio runtime: feature `tokio`.
impl Pipeline<'_> {
    /// As [`status`](Self::status), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future kills every stage, and the descendants that can be found, and does not
    /// wait for them; no zombie and no handle is left.
    ///
    /// # Errors
    /// As [`status`](Self::status); outside of a tokio runtime, `Unsupported`.
    pub async fn status_async(&mut self) -> Result<ExitStatus, Error> {
        let output = self.see(OURS, Keep::Nothing).await?;
        check_tee(&self.name(), &output)?;
        Ok(output.status)
    }

    /// As [`output`](Self::output), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`output`](Self::output); outside of a tokio runtime, `Unsupported`.
    pub async fn output_async(&mut self) -> Result<PipelineOutput, Error> {
        self.see(CAPTURED, Keep::Both).await
    }

    /// As [`capture`](Self::capture), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`capture`](Self::capture); outside of a tokio runtime, `Unsupported`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use pipewright::Command;
    /// let mut pipeline = Command::new("echo").arg("hi").owned() | Command::new("cat");
    /// assert_eq!(pipeline.capture_async().await?.stdout, "hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn capture_async(&mut self) -> Result<PipelineCapture, Error> {
        let output = self.output_async().await?;
        self.decoded(output)
    }

    /// As [`run`](Self::run), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`run`](Self::run); outside of a tokio runtime, `Unsupported`.
    pub async fn run_async(&mut self) -> Result<(), Error> {
        let output = self.see(REMEMBERED, Keep::Tail).await?;
        judge(&output.program, &output)
    }

    /// As [`read`](Self::read), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`read`](Self::read); outside of a tokio runtime, `Unsupported`.
    pub async fn read_async(&mut self) -> Result<String, Error> {
        let output = self.output_async().await?;
        self.trimmed(output)
    }

    /// As [`lines`](Self::lines), for a task. The start itself is made in place.
    ///
    /// # Cancellation
    /// What it gives is no future: see [`AsyncLines::next`].
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub fn lines_async(&mut self) -> Result<AsyncLines, Error> {
        self.lines().map(AsyncLines::new)
    }

    /// As [`events`](Self::events), for a task. The start itself is made in place.
    ///
    /// # Cancellation
    /// What it gives is no future: see [`AsyncEvents::next`].
    ///
    /// # Errors
    /// As [`events`](Self::events).
    pub fn events_async(&mut self) -> Result<AsyncEvents, Error> {
        self.events().map(AsyncEvents::new)
    }

    async fn see(&mut self, defaults: StdioDefaults, keep: Keep) -> Result<PipelineOutput, Error> {
        check_runtime(&self.name(), Doing::Start)?;
        let mut running = self.start(defaults)?;
        // Nobody will write to it, so the first stage is to find the end of its input.
        running.stdin = None;
        let (run, seen) = running.into_run(&self.rules, self.limit, keep);
        let mut stages = Stages { seen, are_over: false };
        match run.see_through(&stages.seen.processes, &self.rules).await {
            Ok(output) => {
                stages.are_over = true;
                stages.seen.conclude(output, self.pipefail)
            }
            Err(failed) => Err(stages.seen.cannot(failed)),
        }
    }
}

/// For tasks of a tokio runtime: feature `tokio`.
impl PipelineChild {
    /// As [`wait`](Self::wait), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the stages running. Input that came with the first command goes on
    /// being fed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); outside of a tokio runtime, `Unsupported`. The stages then go on
    /// running, and the input stays open.
    pub async fn wait_async(&self) -> Result<ExitStatus, Error> {
        check_runtime_to_wait(&joined(&self.programs))?;
        self.wait_until_async(None).await?;
        self.status_of_all()
    }

    /// As [`try_wait_for`](Self::try_wait_for), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`wait_async`](Self::wait_async).
    ///
    /// # Errors
    /// As [`wait_async`](Self::wait_async).
    #[doc(alias = "wait_timeout")]
    pub async fn try_wait_for_async(&self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        check_runtime_to_wait(&joined(&self.programs))?;
        match self.wait_until_async(Instant::now().checked_add(limit)).await? {
            true => self.status_of_all().map(Some),
            false => Ok(None),
        }
    }

    /// As [`stop`](Self::stop), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the stages as they are. A stop that has begun goes on with the next call that waits,
    /// and with no other.
    ///
    /// # Errors
    /// As [`stop`](Self::stop); outside of a tokio runtime, `Unsupported`, and nobody is signalled.
    #[doc(alias = "terminate")]
    pub async fn stop_async(&self) -> Result<ExitStatus, Error> {
        self.stop_as_async(Stop::by(&self.rules)).await
    }

    /// As [`stop_with`](Self::stop_with), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`stop_async`](Self::stop_async).
    ///
    /// # Errors
    /// As [`stop_async`](Self::stop_async).
    pub async fn stop_with_async(
        &self,
        signal: Signal,
        grace: Duration,
    ) -> Result<ExitStatus, Error> {
        self.stop_as_async(Stop { signal, grace }).await
    }

    async fn stop_as_async(&self, how: Stop) -> Result<ExitStatus, Error> {
        check_runtime_to_wait(&joined(&self.programs))?;
        let (parked, exits) = (&self.parked, &self.processes);
        let stopped = parked.stop_async(|| self.new_run(), exits, &self.rules, how).await;
        stopped.map_err(|failed| self.failed(failed))?;
        self.status_of_all()
    }

    async fn wait_until_async(&self, until: Option<Instant>) -> Result<bool, Error> {
        self.close_input()?;
        let (parked, exits) = (&self.parked, &self.processes);
        let waited = parked.wait_async(|| self.new_run(), exits, &self.rules, until).await;
        waited.map_err(|failed| self.failed(failed))
    }

    /// As [`wait_with_output`](Self::wait_with_output), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future is dropping the pipeline.
    ///
    /// # Errors
    /// As [`wait_with_output`](Self::wait_with_output); outside of a tokio runtime, `Unsupported`:
    /// the pipeline is dropped then, and not killed.
    pub async fn wait_with_output_async(self) -> Result<PipelineOutput, Error> {
        check_runtime_to_wait(&joined(&self.programs))?;
        let (running, rules, limit, pipefail) = self.into_running();
        let (run, seen) = running.into_run(&rules, limit, Keep::Both);
        match run.see_through(&seen.processes, &rules).await {
            Ok(output) => seen.conclude(output, pipefail),
            Err(failed) => Err(seen.cannot(failed)),
        }
    }
}

/// Stages that are killed on drop, unless their end has been seen.
struct Stages {
    seen: Seen,
    are_over: bool,
}

impl Drop for Stages {
    fn drop(&mut self) {
        if !self.are_over {
            // Ignored: another user's by now, whom we may not kill.
            let _ = Reach::default().kill(&self.seen.processes);
        }
    }
}
