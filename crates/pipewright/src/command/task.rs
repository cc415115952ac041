//! The verbs of a command, for tasks.

use std::ffi::OsString;

use pipewright_os::process::status::ExitStatus;

use super::{CAPTURED, Command, OURS, REMEMBERED, StdioDefaults};
use crate::error::{Error, Operation};
use crate::events::AsyncEvents;
use crate::lines::AsyncLines;
use crate::output::{Capture, Output, check_success, check_tee};
use crate::run::Collect;
use crate::runtime::check_runtime;

/// Writes the verbs with `_async` of a command and of a pipeline. They differ in `finish_async`, and in the types of
/// what they return.
macro_rules! async_verbs {
    ($owner:ty, $output:ty, $capture:ty) => {
        /// For tasks of a tokio runtime: feature `tokio`.
        ///
        /// The runtime needs `enable_io` and `enable_time`, and may have one thread or many. Nothing is
        /// started before the future is polled for the first time. The start itself is made in place: it
        /// takes about a tenth of a millisecond, however large this program is.
        ///
        /// A run that is handed out piece by piece may go on in another runtime than it began in. Time limits go by the clock
        /// of the system: if that of the runtime is paused (`tokio::time::pause`, for tests), a wait with a limit looks at
        /// it all the time.
        impl $owner {
            /// As [`status`](Self::status), without blocking the thread.
            ///
            /// # Cancellation
            /// Dropping the future kills what was started, and the descendants that can be found, and does not wait
            /// for them; no zombie and no handle is left.
            ///
            /// # Errors
            /// As [`status`](Self::status); outside of a tokio runtime, `Unsupported`.
            ///
            /// ```
            /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            /// let status = pipewright::Command::new("true").status_async().await?;
            /// assert!(status.success());
            /// # Ok::<(), pipewright::Error>(())
            /// # }).unwrap();
            /// ```
            pub async fn status_async(&mut self) -> Result<ExitStatus, Error> {
                let output = self.finish_async(OURS, Collect::Nothing).await?;
                check_tee(&self.name(), &output)?;
                Ok(output.status)
            }

            /// As [`output`](Self::output), without blocking the thread.
            ///
            /// # Cancellation
            /// As with [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// As [`output`](Self::output); outside of a tokio runtime, `Unsupported`.
            pub async fn output_async(&mut self) -> Result<$output, Error> {
                self.finish_async(CAPTURED, Collect::All).await
            }

            /// As [`capture`](Self::capture), without blocking the thread.
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

            /// As [`run`](Self::run), without blocking the thread.
            ///
            /// # Cancellation
            /// As with [`status_async`](Self::status_async).
            ///
            /// # Errors
            /// As [`run`](Self::run); outside of a tokio runtime, `Unsupported`.
            pub async fn run_async(&mut self) -> Result<(), Error> {
                let output = self.finish_async(REMEMBERED, Collect::StderrTail).await?;
                check_success(&output.program, &output)
            }

            /// As [`read`](Self::read), without blocking the thread.
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
            /// Not async: returns at once. See [`AsyncLines::next`].
            ///
            /// # Errors
            /// As [`lines`](Self::lines).
            pub fn lines_async(&mut self) -> Result<AsyncLines, Error> {
                self.lines().map(AsyncLines::new)
            }

            /// As [`events`](Self::events), for a task. The start itself is made in place.
            ///
            /// # Cancellation
            /// Not async: returns at once. See [`AsyncEvents::next`].
            ///
            /// # Errors
            /// As [`events`](Self::events).
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
        check_runtime(&self.program, Operation::Start)?;
        self.start_run(defaults, collect)?.into_future().await
    }
}
