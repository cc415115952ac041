//! The verbs of a command, for tasks.

use pipewright_os::process::status::ExitStatus;

use super::seeing::Seeing;
use super::{AsyncEvents, AsyncLines, check_runtime};
use crate::command::{CAPTURED, Command, Keep, OURS, REMEMBERED, StdioDefaults, into_text};
use crate::error::{Doing, Error};
use crate::output::{Capture, Output, check_tee, judge};

/// For tasks of a tokio runtime: feature `tokio`.
///
/// The runtime needs `enable_io` and `enable_time`, and may have one thread or many. Nothing is
/// started before the future is polled for the first time. The start itself is made in place: it
/// takes about a tenth of a millisecond, however large this program is.
///
/// What is handed out piece by piece may go on in another runtime than it began in. Time limits go by the clock of the
/// system: where that of the runtime is paused (`tokio::time::pause`, for tests), a wait with a limit looks at it all the time.
impl Command {
    /// As [`status`](Self::status), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future kills the child, and the descendants that can be found, and does not wait
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
        let output = self.see(OURS, Keep::Nothing)?.await?;
        check_tee(self.get_program(), &output).map(|()| output.status)
    }

    /// As [`output`](Self::output), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`output`](Self::output); outside of a tokio runtime, `Unsupported`.
    pub async fn output_async(&mut self) -> Result<Output, Error> {
        self.see(CAPTURED, Keep::Both)?.await
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
    /// let (mut a, mut b) = (Command::new("echo"), Command::new("echo"));
    /// let (a, b) = tokio::join!(a.arg("one").capture_async(), b.arg("two").capture_async());
    /// assert_eq!((a?.stdout.as_str(), b?.stdout.as_str()), ("one\n", "two\n"));
    /// # Ok::<(), pipewright::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn capture_async(&mut self) -> Result<Capture, Error> {
        let output = self.output_async().await?;
        into_text(self.get_program(), self.decoding(), output)
    }

    /// As [`run`](Self::run), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`status_async`](Self::status_async).
    ///
    /// # Errors
    /// As [`run`](Self::run); outside of a tokio runtime, `Unsupported`.
    pub async fn run_async(&mut self) -> Result<(), Error> {
        let output = self.see(REMEMBERED, Keep::Tail)?.await?;
        judge(self.get_program(), &output)
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
    /// The child could not be started; there is then none. What goes wrong later is an item.
    pub fn lines_async(&mut self) -> Result<AsyncLines, Error> {
        self.lines().map(AsyncLines::new)
    }

    /// As [`events`](Self::events), for a task. The start itself is made in place.
    ///
    /// # Cancellation
    /// What it gives is no future: see [`AsyncEvents::next`].
    ///
    /// # Errors
    /// The child could not be started; there is then none. What goes wrong later is an item.
    pub fn events_async(&mut self) -> Result<AsyncEvents, Error> {
        self.events().map(AsyncEvents::new)
    }

    fn see(&self, defaults: StdioDefaults, keep: Keep) -> Result<Seeing, Error> {
        check_runtime(self.get_program(), Doing::Start)?;
        self.steps(defaults, keep).map(Seeing::new)
    }
}
