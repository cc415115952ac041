//! The async verbs of a command.

use std::ffi::OsString;

use pipewright_os::process::status::ExitStatus;

use super::{CAPTURED, Command, INHERITED, STDERR_TEED, StdioDefaults};
use crate::error::{Error, FailedOperation};
use crate::events::AsyncEvents;
use crate::lines::AsyncLines;
use crate::output::{Capture, Output, check_success, check_tee};
use crate::run::{Collect, check_runtime};

/// Writes the `_async` verbs of a command and of a pipeline, which differ only in `finish_async` and their result
/// types.
macro_rules! async_verbs {
    ($owner:ty, $output:ty, $capture:ty) => {
        /// Async verbs for tokio tasks, with the feature `tokio`.
        ///
        /// The runtime needs `enable_io` and `enable_time`, and may be of either flavor. Nothing is started before
        /// the future is first polled. The start itself blocks for about a tenth of a millisecond, however large
        /// this program is.
        ///
        /// Lines and events can continue in another runtime than the one they began in. Time limits follow the
        /// system clock: while the runtime's clock is paused (`tokio::time::pause`, for tests), a wait with a limit
        /// polls continuously.
        impl $owner {
            /// Like [`status`](Self::status), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future kills the child and the descendants that can be found, without waiting for them.
            /// No zombie and no handle is left.
            ///
            /// # Errors
            /// Those of [`status`](Self::status); `Unsupported` outside a tokio runtime.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// let status = pipewright::Command::new("true").status_async().await?;
            /// assert!(status.success());
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            pub async fn status_async(&mut self) -> Result<ExitStatus, Error> {
                let output = self.finish_async(INHERITED, Collect::Nothing).await?;
                check_tee(&self.name(), &output)?;
                Ok(output.status)
            }

            /// Like [`output`](Self::output), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// Those of [`output`](Self::output); `Unsupported` outside a tokio runtime.
            pub async fn output_async(&mut self) -> Result<$output, Error> {
                self.finish_async(CAPTURED, Collect::All).await
            }

            /// Like [`capture`](Self::capture), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// Those of [`capture`](Self::capture); `Unsupported` outside a tokio runtime.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// use pipewright::Command;
            /// let mut one = Command::new("echo").arg("one").owned();
            /// let mut two = Command::new("echo").arg("two").owned() | Command::new("cat");
            /// let (one, two) = tokio::join!(one.capture_async(), two.capture_async());
            /// assert_eq!((one?.stdout.as_str(), two?.stdout.as_str()), ("one\n", "two\n"));
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            pub async fn capture_async(&mut self) -> Result<$capture, Error> {
                let output = self.output_async().await?;
                self.decoded(output)
            }

            /// Like [`run`](Self::run), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// Those of [`run`](Self::run); `Unsupported` outside a tokio runtime.
            pub async fn run_async(&mut self) -> Result<(), Error> {
                let output = self.finish_async(STDERR_TEED, Collect::StderrTail).await?;
                check_success(&output.program, &output)
            }

            /// Like [`read`](Self::read), without blocking the thread.
            ///
            /// # Cancellation
            /// As for [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// Those of [`read`](Self::read); `Unsupported` outside a tokio runtime.
            pub async fn read_async(&mut self) -> Result<String, Error> {
                let output = self.output_async().await?;
                self.trimmed(output)
            }

            /// Like [`lines`](Self::lines), for a task. The start itself blocks.
            ///
            /// # Cancellation
            /// Not async: returns at once. See [`AsyncLines::next`].
            ///
            /// # Errors
            /// Those of [`lines`](Self::lines).
            pub fn lines_async(&mut self) -> Result<AsyncLines, Error> {
                self.lines().map(AsyncLines::new)
            }

            /// Like [`events`](Self::events), for a task. The start itself blocks.
            ///
            /// # Cancellation
            /// Not async: returns at once. See [`AsyncEvents::next`].
            ///
            /// # Errors
            /// Those of [`events`](Self::events).
            pub fn events_async(&mut self) -> Result<AsyncEvents, Error> {
                self.events().map(AsyncEvents::new)
            }
        }
    };
}
pub(crate) use async_verbs;

async_verbs!(Command, Output, Capture);

impl Command {
    /// Returns the program, for errors.
    fn name(&self) -> OsString {
        self.program.clone()
    }

    async fn finish_async(
        &mut self,
        defaults: StdioDefaults,
        collect: Collect,
    ) -> Result<Output, Error> {
        check_runtime(&self.program, FailedOperation::Start)?;
        self.start_run(defaults, collect)?.into_future().await
    }
}
