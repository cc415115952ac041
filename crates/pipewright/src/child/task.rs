//! Waiting for a child, and reading what it writes, by a task.

use pipewright_os::status::ExitStatus;

use super::Child;
use crate::command::into_text;
use crate::drive::{Feed, Run};
use crate::error::Error;
use crate::output::{Capture, Output};
use crate::task::{AsyncLines, check_runtime_to_wait};

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
        let feed = self.close_input()?;
        let run = self.run(feed, [None, None]).wait_through(self.process.alone(), &self.rules);
        let waited = run.await.map_err(|(doing, source)| self.cannot(doing, source));
        waited.map(|output| output.status)
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

    async fn see(&self, run: Run) -> Result<Output, Error> {
        run.see_through(self.process.alone(), &self.rules)
            .await
            .map_err(|(doing, source)| self.cannot(doing, source))
    }
}
