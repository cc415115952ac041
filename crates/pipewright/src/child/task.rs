//! Waiting for a child, and reading what it writes, by a task.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::Child;
use crate::command::into_text;
use crate::drive::{Feed, Run, Stop};
use crate::error::Error;
use crate::output::{Capture, Output};
use crate::task::{AsyncEvents, AsyncLines, check_runtime_to_wait};

/// For tasks of a tokio runtime: feature `tokio`.
impl Child {
    /// As [`wait`](Self::wait), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the child running. Input that came with the command goes on being fed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); outside of a tokio runtime, `Unsupported`. The child then goes on
    /// running, with its input open.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let child = pipewright::Command::new("sleep").arg("0.01").spawn()?;
    /// assert!(child.wait_async().await?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait_async(&self) -> Result<ExitStatus, Error> {
        check_runtime_to_wait(&self.program)?;
        match self.wait_until_async(None).await? {
            Some(status) => Ok(status),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.cannot("wait for", io::ErrorKind::TimedOut.into())),
        }
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
        check_runtime_to_wait(&self.program)?;
        self.wait_until_async(Instant::now().checked_add(limit)).await
    }

    /// As [`stop`](Self::stop), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the child as it is. A stop that has begun goes on with the next call that waits, and
    /// with no other: without one, nobody kills a child that ignores the signal, unless the command had
    /// [`enforce_in_background`](crate::Command::enforce_in_background).
    ///
    /// # Errors
    /// As [`stop`](Self::stop); outside of a tokio runtime, `Unsupported`, and nobody is signalled.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let child = pipewright::Command::new("sleep").arg("60").spawn()?;
    /// assert!(!child.stop_async().await?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// # }).unwrap();
    /// ```
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
        check_runtime_to_wait(&self.program)?;
        let exits = self.process.alone();
        let stopped = self.parked.stop_async(|| self.new_run(), exits, &self.rules, how).await;
        stopped.map_err(|failed| self.failed(failed))?;
        self.status()
    }

    async fn wait_until_async(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        self.close_input()?;
        let exits = self.process.alone();
        let waited = self.parked.wait_async(|| self.new_run(), exits, &self.rules, until).await;
        match waited.map_err(|failed| self.failed(failed))? {
            true => self.status().map(Some),
            false => Ok(None),
        }
    }

    /// As [`read_all_bytes`](Self::read_all_bytes), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future is dropping the child.
    ///
    /// # Errors
    /// As [`read_all_bytes`](Self::read_all_bytes); outside of a tokio runtime, `Unsupported`: the child is
    /// dropped then, and not killed.
    pub async fn read_all_bytes_async(mut self) -> Result<Output, Error> {
        check_runtime_to_wait(&self.program)?;
        let (feed, streams): (Option<Feed>, _) = self.take_streams();
        let run = self.run(feed, streams);
        self.see(run).await
    }

    /// The same under the name that std and tokio have for it.
    ///
    /// # Cancellation
    /// Dropping the future is dropping the child.
    ///
    /// # Errors
    /// As [`read_all_bytes_async`](Self::read_all_bytes_async).
    pub async fn wait_with_output_async(self) -> Result<Output, Error> {
        self.read_all_bytes_async().await
    }

    /// As [`read_all_text`](Self::read_all_text), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future is dropping the child.
    ///
    /// # Errors
    /// As [`read_all_text`](Self::read_all_text); outside of a tokio runtime, `Unsupported`: the child is
    /// dropped then, and not killed.
    pub async fn read_all_text_async(self) -> Result<Capture, Error> {
        let (program, decoding) = (self.program.clone(), self.reading.decoding);
        into_text(&program, decoding, self.read_all_bytes_async().await?)
    }

    /// As [`read_all_lines`](Self::read_all_lines), for a task.
    ///
    /// # Cancellation
    /// What it gives is no future: see [`AsyncLines::next`].
    ///
    /// # Errors
    /// As [`read_all_lines`](Self::read_all_lines).
    pub fn read_all_lines_async(self) -> Result<AsyncLines, Error> {
        self.read_all_lines().map(AsyncLines::new)
    }

    /// As [`read_all_events`](Self::read_all_events), for a task.
    ///
    /// # Cancellation
    /// Not a future: see [`AsyncEvents::next`].
    #[must_use = "the child waits when its pipes are full"]
    pub fn read_all_events_async(self) -> AsyncEvents {
        AsyncEvents::new(self.read_all_events())
    }

    async fn see(&self, run: Run) -> Result<Output, Error> {
        run.see_through(self.process.alone(), &self.rules)
            .await
            .map_err(|(doing, source)| self.cannot(doing, source))
    }
}
