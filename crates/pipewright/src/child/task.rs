//! Waiting for a child, and reading what it writes, by a task.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::status::ExitStatus;

use super::Child;
use crate::error::Error;
use crate::events::AsyncEvents;
use crate::lines::AsyncLines;
use crate::output::{Capture, Output};
use crate::run::{Collect, StopRequest};
use crate::runtime::check_runtime_to_wait;
use crate::text::into_text;

/// Writes the waits with `_async` of a [`Child`] and of a [`PipelineChild`](crate::PipelineChild), which differ in
/// `wait_until_async` and `stop_as_async` alone.
macro_rules! async_waits {
    ($child:ty) => {
        /// For tasks of a tokio runtime: feature `tokio`.
        impl $child {
            /// As [`wait`](Self::wait), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes running. Input that came with the command goes on being fed.
            ///
            /// # Errors
            /// As [`wait`](Self::wait); outside of a tokio runtime, `Unsupported`. The processes then go on running, and
            /// the input stays open.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// let child = pipewright::Command::new("sleep").arg("0.01").spawn()?;
            /// assert!(child.wait_async().await?.success());
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            pub async fn wait_async(&self) -> Result<ExitStatus, Error> {
                match self.wait_until_async(None).await? {
                    Some(status) => Ok(status),
                    // Cannot happen without a deadline; not worth a panic if it does.
                    None => Err(self.run.cannot("wait for", io::ErrorKind::TimedOut.into())),
                }
            }

            /// As [`try_wait_for`](Self::try_wait_for), without blocking the thread.
            ///
            /// # Cancellation
            /// As with [`wait_async`](Self::wait_async).
            ///
            /// # Errors
            /// As [`wait_async`](Self::wait_async).
            #[doc(alias = "wait_timeout")]
            pub async fn try_wait_for_async(
                &self,
                limit: Duration,
            ) -> Result<Option<ExitStatus>, Error> {
                self.wait_until_async(Instant::now().checked_add(limit)).await
            }

            /// As [`stop`](Self::stop), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes as they are. A stop that has begun goes on with the next call that
            /// waits, and with no other: without one, nobody kills a process that ignores the signal, unless
            /// `enforce_in_background` was set.
            ///
            /// # Errors
            /// As [`stop`](Self::stop); outside of a tokio runtime, `Unsupported`, and no signal is sent.
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
                self.stop_as_async(self.run.stop_request()).await
            }

            /// As [`stop_with`](Self::stop_with), without blocking the thread.
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
                self.stop_as_async(StopRequest { signal, grace }).await
            }
        }
    };
}
pub(crate) use async_waits;

async_waits!(Child);

/// For tasks of a tokio runtime: feature `tokio`.
impl Child {
    async fn wait_until_async(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.run.close_stdin(self.stdin.as_ref())?;
        match self.run.wait_async(until).await? {
            true => self.status().map(Some),
            false => Ok(None),
        }
    }

    async fn stop_as_async(&self, how: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop_async(how).await?;
        self.status()
    }

    /// As [`read_all_bytes`](Self::read_all_bytes), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future is dropping the child.
    ///
    /// # Errors
    /// As [`read_all_bytes`](Self::read_all_bytes); outside of a tokio runtime, `Unsupported`: the child is
    /// dropped then, and not killed.
    pub async fn read_all_bytes_async(self) -> Result<Output, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.into_run(Collect::All).finish_async().await
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
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
        into_text(&program, decoding, self.read_all_bytes_async().await?)
    }

    /// As [`read_all_lines`](Self::read_all_lines), for a task.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsyncLines::next`].
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
}
