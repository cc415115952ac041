//! Batches for tasks of an async runtime.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pipewright_os::base::service_thread;
use tokio::sync::{mpsc, oneshot};

use super::{Batch, Run, Summary};
use crate::driver::{BatchError, Control};
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

    /// Starts to run the jobs on this machine, as [`start`](Self::start) does. Requires the feature `tokio`, and no
    /// tokio runtime.
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
/// Implements [`Stream`]; or call [`next`](Self::next) in a loop. A task that takes no events holds up the batch after
/// 64 of them.
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

#[cfg(test)]
#[cfg(unix)]
mod tests {

    use std::future::Future;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::vocabulary::JobOutcome;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn shell(script: &str) -> Job {
        Job::new("sh").args(["-c", script])
    }

    #[test]
    fn a_task_gets_all_events_and_the_counts() {
        block_on(async {
            // More events than wait for the task.
            let jobs: Vec<Job> =
                (0..200).map(|number| shell(&format!("exit {}", number % 2))).collect();
            let mut run = Batch::new().jobs(4).start_async(jobs).await.unwrap();
            let mut settled = 0;
            while let Some(event) = run.next().await {
                settled += usize::from(matches!(event.unwrap(), Event::Settled { .. }));
            }
            let summary = run.finish().await.unwrap();
            assert_eq!((settled, summary.succeeded, summary.failed), (200, 100, 100));
        });
    }

    #[test]
    fn two_batches_run_at_the_same_time_on_one_thread() {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
            // Each waits for the other one.
            let meet = |mine: &std::path::Path, theirs: &std::path::Path| {
                let (mine, theirs) = (mine.display(), theirs.display());
                shell(&format!("touch {mine}; until [ -e {theirs} ]; do sleep 0.05; done"))
            };
            let mut first = Box::pin(Batch::new().run_async([meet(&one, &other)]));
            let mut second = Box::pin(Batch::new().run_async([meet(&other, &one)]));
            let mut ended = [None, None];
            std::future::poll_fn(|context| {
                if ended[0].is_none() {
                    if let Poll::Ready(summary) = first.as_mut().poll(context) {
                        ended[0] = Some(summary.unwrap().succeeded);
                    }
                }
                if ended[1].is_none() {
                    if let Poll::Ready(summary) = second.as_mut().poll(context) {
                        ended[1] = Some(summary.unwrap().succeeded);
                    }
                }
                if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!(ended, [Some(1), Some(1)]);
        });
    }

    #[test]
    fn a_run_can_be_controlled_while_it_is_awaited() {
        block_on(async {
            let run = Batch::new().jobs(1).start_async([shell("sleep 1000"), shell("true")]).await;
            let mut run = run.unwrap();
            let (mut states, mut awaited) = (Vec::new(), 2);
            while let Some(event) = run.next().await {
                match event.unwrap() {
                    // A batch that is stopped reads no more: the second job has to be there, too.
                    Event::Started { .. } | Event::InputEnded { .. } => {
                        awaited -= 1;
                        if awaited == 0 {
                            run.control().stop();
                        }
                    }
                    Event::Settled { outcome, .. } => states.push(outcome),
                    _ => {}
                }
            }
            states.sort_by_key(|outcome| outcome.name());
            assert_eq!(states, [JobOutcome::NotRun, JobOutcome::Stopped]);
        });
    }

    #[test]
    fn a_dropped_run_kills_its_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        block_on(async {
            let script = format!("trap '' TERM; echo $$ > {}; sleep 1000", pid_file.display());
            let mut run = Batch::new().start_async([shell(&script)]).await.unwrap();
            while !matches!(run.next().await, Some(Ok(Event::Started { .. }))) {}
            let pid = || std::fs::read_to_string(&pid_file).unwrap_or_default();
            wait_until(|| pid().ends_with('\n'));
            let process = std::path::Path::new("/proc").join(pid().trim());
            assert!(process.exists());
            drop(run);
            wait_until(|| !process.exists());
        });
    }

    fn wait_until(mut fact: impl FnMut() -> bool) {
        let start = Instant::now();
        while !fact() {
            assert!(start.elapsed() < Duration::from_secs(100), "waited in vain");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_error_of_the_start_arrives() {
        block_on(async {
            let batch = Batch::new().log("/no/such/folder/log");
            assert!(matches!(batch.run_async([Job::new("true")]).await, Err(BatchError::Log(_))));
        });
    }
}
