//! Batches for tasks of an async runtime.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pipewright_os::base::service_thread;
use tokio::sync::{mpsc, oneshot};

use super::{Batch, BatchError, Run, Summary};
use crate::driver::Control;
use crate::job::Job;
use crate::source::InputError;
use crate::vocabulary::Event;

/// Events that may wait for the task.
const MOST_EVENTS: usize = 64;

impl Batch {
    /// Runs all jobs on this machine, as [`run`](Self::run) does, and returns the counts. A thread of its own does the
    /// work, so no thread of the runtime waits. Requires the feature `tokio`, and no tokio runtime.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// # Cancellation
    /// A dropped future kills the running jobs.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use pipewright_batch::{Batch, Job};
    /// let summary = Batch::new().jobs(2).run_async(["true", "false"].map(Job::new)).await?;
    /// assert_eq!((summary.succeeded, summary.failed), (1, 1));
    /// # Ok::<(), pipewright_batch::BatchError>(())
    /// # }).unwrap();
    /// ```
    pub async fn run_async<I>(self, jobs: I) -> Result<Summary, BatchError>
    where
        I: IntoIterator<Item: Into<Result<Job, InputError>> + 'static> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        self.start_async(jobs).await?.finish().await
    }

    /// Starts to run the jobs on this machine, as [`start`](Self::start) does. Requires the feature `tokio`, and no tokio
    /// runtime.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Cancellation
    /// A dropped future kills the jobs that have been started.
    pub async fn start_async<I>(self, jobs: I) -> Result<AsyncRun, BatchError>
    where
        I: IntoIterator<Item: Into<Result<Job, InputError>> + 'static> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let (send_start, start) = oneshot::channel();
        let (send_events, events) = mpsc::channel(MOST_EVENTS);
        let (send_end, end) = oneshot::channel();
        let work = move || match self.start(jobs) {
            Ok(run) => {
                let guard = StopOnDrop(run.control());
                // A task that is gone has no receiver: the value comes back, and its drop stops the batch.
                let _ = send_start.send(Ok(guard));
                relay(run, &send_events, send_end);
            }
            Err(error) => drop(send_start.send(Err(error))),
        };
        service_thread::start_with_default_stack(c"pw-batch", work).map_err(BatchError::Start)?;
        let guard = start.await.map_err(|_| BatchError::Executor(ended_early()))??;
        Ok(AsyncRun { events, end, guard })
    }
}

/// Passes events to a task, until it is gone or the batch is over.
fn relay(
    mut run: Run,
    events: &mpsc::Sender<Result<Event, BatchError>>,
    end: oneshot::Sender<Result<Summary, BatchError>>,
) {
    for event in &mut run {
        if events.blocking_send(event).is_err() {
            // Without its task: the jobs are killed.
            return;
        }
    }
    // Ignored: the task may be gone by now.
    let _ = end.send(run.finish());
}

fn ended_early() -> io::Error {
    io::Error::other("the thread of the batch has ended early")
}

/// A running batch for a task, from [`Batch::start_async`]. See [`Run`].
///
/// Implements [`Stream`]; or call [`next`](Self::next) in a loop. A task that takes no events holds up the batch after 64
/// of them.
///
/// # Drop
/// Kills the running jobs.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pipewright_batch::{Batch, Event, Job};
/// let mut run = Batch::new().jobs(2).start_async(["true", "false"].map(Job::new)).await?;
/// while let Some(event) = run.next().await {
///     if let Event::Settled { job, outcome, .. } = event? {
///         println!("job {job}: {}", outcome.name());
///     }
/// }
/// assert_eq!(run.finish().await?.failed, 1);
/// # Ok::<(), pipewright_batch::BatchError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a batch without its run is killed"]
pub struct AsyncRun {
    /// Declared before the guard, so dropped first: the thread finds its task gone when it has been woken.
    events: mpsc::Receiver<Result<Event, BatchError>>,
    end: oneshot::Receiver<Result<Summary, BatchError>>,
    guard: StopOnDrop,
}

impl AsyncRun {
    /// Returns a control, which drains or stops this run.
    #[must_use]
    pub fn control(&self) -> Control {
        self.guard.0.clone()
    }

    /// Waits for the next event. `None`: there are no more.
    ///
    /// # Errors
    /// As for [`Run`].
    ///
    /// # Cancellation
    /// Loses no event.
    pub async fn next(&mut self) -> Option<Result<Event, BatchError>> {
        self.events.recv().await
    }

    /// Runs the rest, and returns the counts.
    ///
    /// # Errors
    /// As for [`Run::finish`].
    ///
    /// # Cancellation
    /// A dropped future kills the running jobs.
    pub async fn finish(mut self) -> Result<Summary, BatchError> {
        while let Some(event) = self.events.recv().await {
            event?;
        }
        (&mut self.end).await.map_err(|_| BatchError::Executor(ended_early()))?
    }
}

impl Stream for AsyncRun {
    type Item = Result<Event, BatchError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

/// Wakes the thread of a batch when its task is gone.
#[derive(Debug)]
struct StopOnDrop(Control);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
