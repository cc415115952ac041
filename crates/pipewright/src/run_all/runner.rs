//! Many commands at once, of which more can come while some run.

use std::time::{Duration, Instant};

use super::push_queue::PushQueue;
use super::run_set::RunSet;
use super::{Runnable, next_end};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::next::Next;
use crate::output::Capture;

/// Runs commands, some of them at once, and takes more while they run: for retries, graphs of
/// dependencies and queues.
///
/// Each command comes with a key of any type, which comes back with its result. Keys need not
/// differ. All commands are run by the thread that calls [`next`](Iterator::next) or
/// [`next_within`](Self::next_within): nothing is started, read or stopped between these calls, and
/// a child that writes much waits meanwhile. Each command keeps its own settings: its timeout, its
/// limits, its stdio.
///
/// Every key that was pushed is returned exactly once, in the order of the ends. After `next` has
/// returned `None`, more can be pushed. A list of commands that is known from the start needs no
/// runner: see [`run_all`](crate::run_all). A task uses [`AsyncRunner`](crate::AsyncRunner)
/// (feature `tokio`).
///
/// # Results
/// A result is that of [`Command::capture`](crate::Command::capture): an error is a command that
/// could not be started, or not be waited for. A [`Pipeline`](crate::Pipeline) counts as one
/// command, with the result of [its whole](crate::Pipelined::whole). A command that was cancelled
/// while it ran has [`Outcome::Cancelled`](crate::Outcome::Cancelled); one that was cancelled before
/// its start is the error [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
///
/// # Drop
/// Kills the commands that run, and the descendants that can be found. The queued ones are never
/// started.
///
/// ```
/// use pipewright::{Command, Runner};
///
/// // A retry: pushed again in the loop.
/// let flaky = |attempt: u32| Command::new("test").arg(attempt.to_string()).args(["-ge", "3"]).owned();
/// let mut runner = Runner::new(2);
/// runner.push(1, flaky(1));
/// let mut succeeded = None;
/// while let Some((attempt, result)) = runner.next() {
///     match result?.success() {
///         true => succeeded = Some(attempt),
///         false => runner.push(attempt + 1, flaky(attempt + 1)),
///     }
/// }
/// assert_eq!(succeeded, Some(3));
/// # Ok::<(), pipewright::Error>(())
/// ```
#[doc(alias = "JobQueue")]
#[doc(alias = "pool")]
#[derive(Debug)]
#[must_use = "a runner starts nothing until `next` or `next_within` is called"]
pub struct Runner<K>(PushQueue<K, RunSet>);

impl<K> Runner<K> {
    /// Creates a runner of that many commands at once, at least one.
    #[doc(alias = "max_parallel")]
    pub fn new(concurrency: usize) -> Runner<K> {
        Runner(PushQueue::new(concurrency))
    }

    /// Lets the token cancel all, now and later: once it is cancelled, the commands that run are
    /// stopped, and those that are queued, or are pushed later, are never started. It wakes
    /// [`next`](Iterator::next).
    ///
    /// ```
    /// use pipewright::{CancelToken, Command, ErrorKind, Runner};
    /// let token = CancelToken::new();
    /// let mut runner = Runner::new(1).with_cancel(&token);
    /// runner.push("never", Command::new("true"));
    /// token.cancel();
    /// let (_, result) = runner.next().unwrap();
    /// assert_eq!(result.unwrap_err().kind(), &ErrorKind::Cancelled);
    /// ```
    pub fn with_cancel(mut self, token: &CancelToken) -> Runner<K> {
        self.0.cancel_on(token);
        self
    }

    /// Lets the token drain the runner: once it is cancelled, the commands that run go on to their
    /// ends, and those that are queued, or are pushed later, are never started.
    ///
    /// The token is looked at when a command ends, and by each call of [`next`](Iterator::next).
    pub fn with_drain(mut self, token: &CancelToken) -> Runner<K> {
        self.0.drain_on(token);
        self
    }

    /// Sets how many commands run at once, at least one. If more run already, they go on to their
    /// ends.
    pub fn set_concurrency(&mut self, count: usize) {
        self.0.set_concurrency(count);
    }

    /// Queues a command or a pipeline. It is started by [`next`](Iterator::next), in the order of
    /// the pushes, when there is room for it.
    ///
    /// A chain of setters ends with [`owned`](crate::Command::owned).
    pub fn push(&mut self, key: K, command: impl Into<Runnable<'static>>) {
        self.0.push(key, command.into());
    }

    /// Returns how many keys have been pushed and not been returned: those that are queued, those
    /// that run, and those whose results wait for [`next`](Iterator::next).
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if `next` would return `None`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many commands run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.running()
    }

    /// Returns how many commands have not been started.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.0.queued()
    }

    /// Cancels every command of that key. One that runs is sent its stop signal, is killed after its
    /// [grace](crate::Command::kill_grace), and ends with
    /// [`Outcome::Cancelled`](crate::Outcome::Cancelled). One that is queued is never started, and
    /// its result is [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). Their results still
    /// come from [`next`](Iterator::next), which also sees the stop through.
    ///
    /// Returns false if no command of that key runs or is queued.
    pub fn cancel(&mut self, key: &K) -> bool
    where
        K: PartialEq,
    {
        self.0.cancel(key)
    }

    /// Cancels all that run or are queued, as [`cancel`](Self::cancel) does. Commands that are pushed
    /// later run as usual.
    pub fn cancel_all(&mut self) {
        self.0.cancel_all();
    }

    /// Cancels those that are queued, as [`cancel`](Self::cancel) does. Those that run go on.
    pub fn cancel_queued(&mut self) {
        self.0.cancel_queued();
    }

    /// Waits until a command ends, but not longer than that. Zero starts what there is room for,
    /// reads what there is, and returns at once.
    ///
    /// [`Next::Done`]: nothing is left, as where [`next`](Iterator::next) returns `None`.
    #[doc(alias = "wait_timeout")]
    pub fn next_within(&mut self, limit: Duration) -> Next<(K, Result<Capture, Error>)> {
        // A limit that the clock cannot hold is none.
        self.next_until(Instant::now().checked_add(limit))
    }

    fn next_until(&mut self, until: Option<Instant>) -> Next<(K, Result<Capture, Error>)> {
        loop {
            let end = match next_end(&mut self.0.queue, &mut self.0.running, until) {
                Next::Item(end) => end,
                Next::Pending => return Next::Pending,
                Next::Done => return Next::Done,
            };
            if let Some(end) = self.0.keyed(end) {
                return Next::Item(end);
            }
        }
    }
}

/// Waits until a command ends, and returns its key and its result; `None`: nothing is left. More can
/// be pushed afterwards.
impl<K> Iterator for Runner<K> {
    type Item = (K, Result<Capture, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_until(None) {
            Next::Item(end) => Some(end),
            Next::Pending | Next::Done => None,
        }
    }
}
