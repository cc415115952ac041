//! Waiting for a process, for tasks.

use std::future::poll_fn;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::wait::{self, Watch};

use super::inner::REAP_WAIT;
use super::{ProcessEnd, ProcessHandle, WAIT};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::outcome::Outcome;

/// Async waits for tokio tasks, with the feature `tokio`.
impl ProcessHandle {
    /// Like [`wait`](Self::wait), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future affects neither the process nor the handle.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait); `Unsupported` outside a tokio runtime.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let process = pipewright::Command::new("sleep").arg("0.01").start()?;
    /// let end = process.wait_async().await?;
    /// assert!(end.status.is_some_and(|status| status.success()));
    /// # Ok::<(), pipewright::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait_async(&self) -> Result<ProcessEnd, Error> {
        match self.watch(None, None).await? {
            Some(end) => Ok(end),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.cannot(WAIT, io::ErrorKind::TimedOut.into())),
        }
    }

    /// Like [`try_wait_for`](Self::try_wait_for), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future affects neither the process nor the handle.
    ///
    /// # Errors
    /// Those of [`try_wait_for`](Self::try_wait_for); `Unsupported` outside a tokio runtime.
    #[doc(alias = "wait_timeout")]
    pub async fn try_wait_for_async(&self, limit: Duration) -> Result<Option<ProcessEnd>, Error> {
        self.watch(Instant::now().checked_add(limit), None).await
    }

    /// Like [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future affects neither the process nor the handle. A kill that was already sent takes effect.
    ///
    /// # Errors
    /// Those of [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout); `Unsupported` outside a tokio runtime.
    pub async fn wait_or_kill_on_timeout_async(
        &self,
        limit: Duration,
    ) -> Result<ProcessEnd, Error> {
        match self.try_wait_for_async(limit).await? {
            Some(end) => Ok(end),
            None => self.kill_and_wait_async(Outcome::TimedOut).await,
        }
    }

    /// Like [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future affects neither the process nor the handle. A kill that was already sent takes effect.
    ///
    /// # Errors
    /// Those of [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel); `Unsupported` outside a tokio runtime.
    pub async fn wait_or_kill_on_cancel_async(
        &self,
        token: &CancelToken,
    ) -> Result<ProcessEnd, Error> {
        match self.watch(None, Some(token)).await? {
            Some(end) => Ok(end),
            None => self.kill_and_wait_async(Outcome::Cancelled).await,
        }
    }

    async fn kill_and_wait_async(&self, outcome: Outcome) -> Result<ProcessEnd, Error> {
        let sent = self.kill()?;
        Ok(self.wait_async().await?.after_kill(sent, outcome))
    }

    /// Adds the status of a process that is not a child, which the system may report once its parent has reaped it.
    async fn after_reap(&self, mut end: ProcessEnd) -> Result<ProcessEnd, Error> {
        const PAUSE: Duration = Duration::from_millis(1);
        let until = Instant::now() + REAP_WAIT;
        while end.status.is_none() && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
            end = self.inner.end().map_err(|error| self.cannot(WAIT, error))?.unwrap_or(end);
        }
        Ok(end)
    }

    /// Waits for the end. Returns `None` if the deadline or a cancel came first.
    async fn watch(
        &self,
        deadline: Option<Instant>,
        token: Option<&CancelToken>,
    ) -> Result<Option<ProcessEnd>, Error> {
        let cannot = |error| self.cannot(WAIT, error);
        // Checked even if the process has ended: a status may have to be waited for, with a timer.
        wait::check_runtime().map_err(cannot)?;
        let mut watch = Watch::default();
        loop {
            if let Some(end) = self.inner.end().map_err(cannot)? {
                return self.after_reap(end).await.map(Some);
            }
            let mut slots = self.inner.slots(token).map_err(cannot)?;
            let done = poll_fn(|cx| watch.poll_wait(cx, &mut slots, deadline)).await;
            let done = done.map_err(cannot)?;
            if self.inner.timed_out_or_cancelled(&slots, done, token) {
                return self.inner.end().map_err(cannot);
            }
        }
    }
}
