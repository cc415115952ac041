//! Waiting for a process, by a task.

use std::future::poll_fn;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::wait::{self, Watch};

use super::inner::REAP_TAKES;
use super::{ProcessEnd, ProcessHandle, WAIT};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::outcome::Outcome;

/// For tasks of a tokio runtime: feature `tokio`.
impl ProcessHandle {
    /// As [`wait`](Self::wait), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the process as it is, and the handle as good as before.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); outside of a tokio runtime, `Unsupported`.
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

    /// As [`try_wait_for`](Self::try_wait_for), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the process as it is, and the handle as good as before.
    ///
    /// # Errors
    /// As [`try_wait_for`](Self::try_wait_for); outside of a tokio runtime, `Unsupported`.
    #[doc(alias = "wait_timeout")]
    pub async fn try_wait_for_async(&self, limit: Duration) -> Result<Option<ProcessEnd>, Error> {
        self.watch(Instant::now().checked_add(limit), None).await
    }

    /// As [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the process as it is, and the handle as good as before. If a kill
    /// has been sent, it has been sent.
    ///
    /// # Errors
    /// As [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout); outside of a tokio runtime,
    /// `Unsupported`.
    pub async fn wait_or_kill_on_timeout_async(
        &self,
        limit: Duration,
    ) -> Result<ProcessEnd, Error> {
        match self.try_wait_for_async(limit).await? {
            Some(end) => Ok(end),
            None => self.kill_and_wait_async(Outcome::TimedOut).await,
        }
    }

    /// As [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future leaves the process as it is, and the handle as good as before. If a kill
    /// has been sent, it has been sent.
    ///
    /// # Errors
    /// As [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel); outside of a tokio runtime,
    /// `Unsupported`.
    pub async fn wait_or_kill_on_cancel_async(
        &self,
        token: &CancelToken,
    ) -> Result<ProcessEnd, Error> {
        match self.watch(None, Some(token)).await? {
            Some(end) => Ok(end),
            None => self.kill_and_wait_async(Outcome::Cancelled).await,
        }
    }

    async fn kill_and_wait_async(&self, why: Outcome) -> Result<ProcessEnd, Error> {
        let sent = self.kill()?;
        Ok(self.wait_async().await?.after_kill(sent, why))
    }

    /// The same end, with the status of a process that is not our child where its parent's reap
    /// makes that known.
    async fn after_reap(&self, mut end: ProcessEnd) -> Result<ProcessEnd, Error> {
        const PAUSE: Duration = Duration::from_millis(1);
        let until = Instant::now() + REAP_TAKES;
        while end.status.is_none() && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
            end = self.inner.end().map_err(|error| self.cannot(WAIT, error))?.unwrap_or(end);
        }
        Ok(end)
    }

    /// `None`: the time is up, or the token is cancelled.
    async fn watch(
        &self,
        deadline: Option<Instant>,
        token: Option<&CancelToken>,
    ) -> Result<Option<ProcessEnd>, Error> {
        let cannot = |error| self.cannot(WAIT, error);
        // Also where it has ended: of some processes the status has to be waited for, by a timer.
        wait::check_runtime().map_err(cannot)?;
        let mut watch = Watch::default();
        loop {
            if let Some(end) = self.inner.end().map_err(cannot)? {
                return self.after_reap(end).await.map(Some);
            }
            let mut slots = self.inner.slots(token).map_err(cannot)?;
            let done = poll_fn(|cx| watch.poll_wait(cx, &mut slots, deadline)).await;
            let done = done.map_err(cannot)?;
            if self.inner.is_given_up(&slots, done, token) {
                return self.inner.end().map_err(cannot);
            }
        }
    }
}
