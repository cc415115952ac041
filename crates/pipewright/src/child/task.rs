//! Waiting for a child and reading its output, for tasks.

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

/// Writes the `_async` waits of [`Child`] and [`PipelineChild`](crate::PipelineChild), which differ only in
/// `wait_until_async` and `stop_as_async`.
macro_rules! async_waits {
    ($child:ty) => {
        /// Async waits for tokio tasks, with the feature `tokio`.
        impl $child {
            /// Like [`wait`](Self::wait), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes running. Input that was given to the command is still fed.
            ///
            /// # Errors
            /// Those of [`wait`](Self::wait); `Unsupported` outside a tokio runtime. The processes then keep
            /// running, and their stdin stays open.
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

            /// Like [`try_wait_for`](Self::try_wait_for), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`wait_async`](Self::wait_async).
            ///
            /// # Errors
            /// Those of [`wait_async`](Self::wait_async).
            #[doc(alias = "wait_timeout")]
            pub async fn try_wait_for_async(
                &self,
                limit: Duration,
            ) -> Result<Option<ExitStatus>, Error> {
                self.wait_until_async(Instant::now().checked_add(limit)).await
            }

            /// Like [`stop`](Self::stop), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future leaves the processes as they are. The next call that waits continues a stop that
            /// has begun. Without such a call, a process that ignores the signal is never killed, unless
            /// `enforce_in_background` was set.
            ///
            /// # Errors
            /// Those of [`stop`](Self::stop); `Unsupported` outside a tokio runtime, and then no signal is sent.
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

            /// Like [`stop_with`](Self::stop_with), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`stop_async`](Self::stop_async).
            ///
            /// # Errors
            /// Those of [`stop_async`](Self::stop_async).
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

/// Async reads for tokio tasks, with the feature `tokio`.
impl Child {
    async fn wait_until_async(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.run.close_stdin(self.stdin.as_ref())?;
        match self.run.wait_async(until).await? {
            true => self.status().map(Some),
            false => Ok(None),
        }
    }

    async fn stop_as_async(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop_async(request).await?;
        self.status()
    }

    /// Like [`read_all_bytes`](Self::read_all_bytes), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes); `Unsupported` outside a tokio runtime. The child is then
    /// dropped, not killed.
    pub async fn read_all_bytes_async(self) -> Result<Output, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.into_run(Collect::All).finish_async().await
    }

    /// Same as [`read_all_bytes_async`](Self::read_all_bytes_async), under the name in std and tokio.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_bytes_async`](Self::read_all_bytes_async).
    pub async fn wait_with_output_async(self) -> Result<Output, Error> {
        self.read_all_bytes_async().await
    }

    /// Like [`read_all_text`](Self::read_all_text), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_text`](Self::read_all_text); `Unsupported` outside a tokio runtime. The child is then
    /// dropped, not killed.
    pub async fn read_all_text_async(self) -> Result<Capture, Error> {
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
        into_text(&program, decoding, self.read_all_bytes_async().await?)
    }

    /// Like [`read_all_lines`](Self::read_all_lines), for a task.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsyncLines::next`].
    ///
    /// # Errors
    /// Those of [`read_all_lines`](Self::read_all_lines).
    pub fn read_all_lines_async(self) -> Result<AsyncLines, Error> {
        self.read_all_lines().map(AsyncLines::new)
    }

    /// Like [`read_all_events`](Self::read_all_events), for a task.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsyncEvents::next`].
    #[must_use = "the child waits when its pipes are full"]
    pub fn read_all_events_async(self) -> AsyncEvents {
        AsyncEvents::new(self.read_all_events())
    }
}
