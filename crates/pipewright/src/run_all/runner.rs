//! A runner of many commands, which takes more while some run.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::wake::Wake;

use super::guarded::GuardedSet;
use super::run_set::PushQueue;
use super::{Runnable, next_end};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;
use crate::run::Next;

/// Runs commands, some of them at once, and takes more while they run: for retries, dependency graphs and queues.
///
/// Each command is pushed with a key of any type, which is returned with its result. Keys may be equal. The thread that
/// calls [`next`](Iterator::next) or [`next_within`](Self::next_within) does all the work: nothing is started, read or
/// stopped between these calls, and a child blocks when its pipe is full. Each command keeps its own settings: its
/// timeout (from its own start), its limits, its stdio.
///
/// Every pushed key is returned exactly once, in the order in which the commands end. After `next` has returned `None`,
/// more can be pushed. A list of commands that is known from the start needs no runner: see
/// [`run_all`](crate::run_all). A task uses `AsyncRunner` (feature `tokio`).
///
/// # Results
/// A result is that of [`Command::capture`](crate::Command::capture): an error means that the command could not be
/// started or waited for. A [`Pipeline`](crate::Pipeline) counts as one command, with the result of
/// [its whole](crate::Pipelined::whole). A command that is cancelled while it runs has
/// [`Outcome::Cancelled`](crate::Outcome::Cancelled). One that is cancelled before its start has the error
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
///
/// # Drop
/// Kills the running commands, and the descendants that can be found. Queued commands are never started.
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
pub struct Runner<K> {
    commands: PushQueue<K, GuardedSet>,
    wake: Option<Arc<Wake>>,
}

/// Wakes a [`Runner`] from another thread: see [`Runner::waker`].
#[derive(Debug, Clone)]
pub struct RunnerWaker(Arc<Wake>);

impl RunnerWaker {
    /// Makes the runner's call of [`next_within`](Runner::next_within) return [`Next::Pending`]: the one that waits
    /// now, or the next one that would wait. More calls before that have no further effect.
    pub fn wake(&self) {
        self.0.raise();
    }
}

impl<K> Runner<K> {
    /// Creates a runner that runs up to this many commands at once; 0 counts as 1.
    #[doc(alias = "max_parallel")]
    pub fn new(concurrency: usize) -> Runner<K> {
        Runner { commands: PushQueue::new(concurrency), wake: None }
    }

    /// Sets a token that cancels all commands, now and later. Once it is cancelled, the running commands are stopped,
    /// and commands that are queued, or are pushed later, are never started. A cancel wakes [`next`](Iterator::next).
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
        self.commands.cancel_on(token);
        self
    }

    /// Sets a token that drains the runner. Once it is cancelled, the running commands continue, and commands that are
    /// queued, or are pushed later, are never started.
    ///
    /// The token is checked when a command ends, and by each call of [`next`](Iterator::next).
    pub fn with_drain(mut self, token: &CancelToken) -> Runner<K> {
        self.commands.drain_on(token);
        self
    }

    /// Enforces the timeouts, deadlines and idle timeouts of all commands, and the kill after the grace, while the
    /// thread that has the runner does something else too: between two calls of [`next`](Iterator::next), and in a
    /// closure of [`Stdio::tee_with`](crate::Stdio::tee_with) whose stream is not kept. One more thread does this, from
    /// the first command on that has such a time. Nothing is read or started meanwhile, and the next call reports the
    /// ends. If there is no room for the thread, only calls of `next` enforce the times.
    ///
    /// [`Command::enforce_in_background`](crate::Command::enforce_in_background) does this for single commands, with
    /// their cancel tokens, and not in such a closure. Call this before the first `next`.
    ///
    /// ```
    /// use pipewright::{Command, Outcome, Runner};
    /// use std::time::Duration;
    /// let mut runner = Runner::new(1).enforce_in_background();
    /// runner.push((), Command::new("sleep").arg("600").timeout(Duration::from_millis(50)).owned());
    /// runner.next_within(Duration::ZERO);
    /// std::thread::sleep(Duration::from_millis(200));
    /// let (_, result) = runner.next().unwrap();
    /// assert_eq!(result?.outcome, Outcome::TimedOut);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn enforce_in_background(mut self) -> Runner<K> {
        self.commands.running.guard();
        self
    }

    /// Sets the number of commands that run at once; 0 counts as 1. If more are already running, they continue.
    pub fn set_concurrency(&mut self, count: usize) {
        self.commands.set_concurrency(count);
    }

    /// Returns a handle that wakes [`next_within`](Self::next_within) from any thread, for a caller that also waits for
    /// something else. Nothing wakes a runner that has no command to wait for: then `next_within` returns at once.
    ///
    /// # Errors
    /// No more handles are available.
    ///
    /// ```
    /// use pipewright::{Command, Next, Runner};
    /// use std::time::Duration;
    /// let mut runner = Runner::new(1);
    /// runner.push("slow", Command::new("sleep").arg("60").owned());
    /// let waker = runner.waker()?;
    /// let other = std::thread::spawn(move || waker.wake());
    /// assert!(matches!(runner.next_within(Duration::from_secs(60)), Next::Pending));
    /// # other.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn waker(&mut self) -> io::Result<RunnerWaker> {
        let wake = match &self.wake {
            Some(wake) => Arc::clone(wake),
            None => Arc::new(Wake::new()?),
        };
        self.wake = Some(Arc::clone(&wake));
        Ok(RunnerWaker(wake))
    }

    /// Queues a command or a pipeline. [`next`](Iterator::next) starts it, in the order of the pushes, when there is
    /// room.
    ///
    /// End a chain of setters with [`owned`](crate::Command::owned).
    pub fn push(&mut self, key: K, command: impl Into<Runnable<'static>>) {
        self.commands.push(key, command.into());
    }

    /// Queues a command or a pipeline that starts after this delay, or when there is room later: for retries. Meanwhile
    /// others start. A command whose delay is over starts before those that were pushed without one.
    /// [`cancel`](Self::cancel) and a drain do not wait for the delay.
    ///
    /// ```
    /// use pipewright::{Command, Runner};
    /// use std::time::{Duration, Instant};
    /// let mut runner = Runner::new(1);
    /// let begin = Instant::now();
    /// runner.push_after(Duration::from_millis(50), "again", Command::new("true"));
    /// runner.push("now", Command::new("true"));
    /// assert!(runner.any(|(key, _)| key == "again"));
    /// assert!(begin.elapsed() >= Duration::from_millis(50));
    /// ```
    #[doc(alias = "retry_delay")]
    pub fn push_after(&mut self, delay: Duration, key: K, command: impl Into<Runnable<'static>>) {
        self.commands.push_after(delay, key, command.into());
    }

    /// Returns the number of keys that were pushed and have not been returned: those of queued commands, of running
    /// commands, and of results that [`next`](Iterator::next) has not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns true if `next` would return `None`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of running commands.
    #[must_use]
    pub fn running(&self) -> usize {
        self.commands.running()
    }

    /// Returns the number of commands that have not been started.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.commands.queued()
    }

    /// Returns the number of the process of a command with this key; of a pipeline, that of its first one. `None`: no
    /// such command runs.
    ///
    /// ```
    /// use pipewright::{Command, Runner};
    /// use std::time::Duration;
    /// let mut runner = Runner::new(1);
    /// runner.push("slow", Command::new("sleep").arg("60").owned());
    /// assert_eq!(runner.pid(&"slow"), None);
    /// runner.next_within(Duration::ZERO);
    /// assert!(runner.pid(&"slow").is_some());
    /// ```
    #[must_use]
    pub fn pid(&self, key: &K) -> Option<u32>
    where
        K: PartialEq,
    {
        self.commands.numbers_of(key).find_map(|number| self.commands.running.pid(number))
    }

    /// Cancels every command of this key. A running one gets its stop signal, is killed after its
    /// [grace](crate::Command::kill_grace), and ends with [`Outcome::Cancelled`](crate::Outcome::Cancelled). A queued
    /// one is never started, and its result is [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    /// [`next`](Iterator::next) still returns their results. It also enforces the grace.
    ///
    /// Returns false if no command of this key is running or queued.
    pub fn cancel(&mut self, key: &K) -> bool
    where
        K: PartialEq,
    {
        self.commands.cancel(key)
    }

    /// Cancels all running and queued commands, as [`cancel`](Self::cancel) does. Commands that are pushed later run as
    /// usual.
    pub fn cancel_all(&mut self) {
        self.commands.cancel_all();
    }

    /// Cancels the queued commands, as [`cancel`](Self::cancel) does. The running ones continue.
    pub fn cancel_queued(&mut self) {
        self.commands.cancel_queued();
    }

    /// Waits until a command ends, but no longer than `limit`. Zero starts commands if there is room, reads the output
    /// that is ready, and returns at once.
    ///
    /// Returns [`Next::Done`] if nothing is left, when [`next`](Iterator::next) would return `None`.
    #[doc(alias = "wait_timeout")]
    pub fn next_within(&mut self, limit: Duration) -> Next<(K, Result<Capture, Error>)> {
        // A limit beyond the range of the clock never ends.
        self.next_until(Instant::now().checked_add(limit))
    }

    fn next_until(&mut self, until: Option<Instant>) -> Next<(K, Result<Capture, Error>)> {
        loop {
            let wake = self.wake.as_deref();
            let end =
                match next_end(&mut self.commands.queue, &mut self.commands.running, wake, until) {
                    Next::Item(end) => end,
                    Next::Pending => return Next::Pending,
                    Next::Done => return Next::Done,
                };
            if let Some(end) = self.commands.with_key(end) {
                return Next::Item(end);
            }
        }
    }
}

/// Waits until a command ends, and returns its key and its result, or `None` if nothing is left. More can be pushed
/// afterwards.
impl<K> Iterator for Runner<K> {
    type Item = (K, Result<Capture, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_until(None) {
                Next::Item(end) => return Some(end),
                // Woken: only `next_within` reports that.
                Next::Pending => {}
                Next::Done => return None,
            }
        }
    }
}
