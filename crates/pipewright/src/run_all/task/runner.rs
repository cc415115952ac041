//! A runner for tasks.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pipewright_os::base::wait::Watch;

use super::RunningCommands;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;
use crate::run_all::Runnable;
use crate::run_all::push_queue::{KeyedEnd, PushQueue};
use crate::runtime::poll_within_budget;

/// A [`Runner`](crate::Runner) for tasks: the same rules, without blocking the thread (feature `tokio`).
///
/// Implements `Stream`. After the stream has ended, more can be pushed.
///
/// # Drop
/// Kills the running commands, and the descendants that can be found, without waiting for them. Queued commands are
/// never started.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use pipewright::{AsyncRunner, Command};
///
/// // A dependency graph: commands are pushed when the one that they depend on has ended.
/// let mut runner = AsyncRunner::new(4);
/// runner.push("compile", Command::new("echo").arg("compiled").owned());
/// let mut order = Vec::new();
/// while let Some((name, result)) = runner.next().await {
///     assert!(result?.success());
///     if name == "compile" {
///         runner.push("test", Command::new("echo").arg("tested").owned());
///         runner.push("lint", Command::new("echo").arg("linted").owned() | Command::new("cat"));
///     }
///     order.push(name);
/// }
/// assert_eq!((order.len(), order[0]), (3, "compile"));
/// # Ok::<(), pipewright::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a runner starts nothing until `next` is awaited"]
pub struct AsyncRunner<K> {
    pushed: PushQueue<K, RunningCommands>,
    /// The registration of the cancel token.
    watch: Watch,
}

impl<K> AsyncRunner<K> {
    /// Creates a runner that runs up to this many commands at once; 0 counts as 1.
    pub fn new(concurrency: usize) -> AsyncRunner<K> {
        AsyncRunner { pushed: PushQueue::new(concurrency), watch: Watch::default() }
    }

    /// Sets a token that cancels all commands: see [`Runner::with_cancel`](crate::Runner::with_cancel).
    pub fn with_cancel(mut self, token: &CancelToken) -> AsyncRunner<K> {
        self.pushed.cancel_on(token);
        self
    }

    /// Sets a token that drains the runner: see [`Runner::with_drain`](crate::Runner::with_drain).
    pub fn with_drain(mut self, token: &CancelToken) -> AsyncRunner<K> {
        self.pushed.drain_on(token);
        self
    }

    /// Sets the concurrency: see [`Runner::set_concurrency`](crate::Runner::set_concurrency).
    pub fn set_concurrency(&mut self, count: usize) {
        self.pushed.set_concurrency(count);
    }

    /// Queues a command: see [`Runner::push`](crate::Runner::push). A poll of [`next`](Self::next) starts it.
    pub fn push(&mut self, key: K, command: impl Into<Runnable<'static>>) {
        self.pushed.push(key, command.into());
    }

    /// Returns the number of keys that [`next`](Self::next) has not returned: see [`Runner::len`](crate::Runner::len).
    #[must_use]
    pub fn len(&self) -> usize {
        self.pushed.len()
    }

    /// Returns true if [`next`](Self::next) would return `None`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of running commands.
    #[must_use]
    pub fn running(&self) -> usize {
        self.pushed.running()
    }

    /// Returns the number of commands that have not been started.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.pushed.queued()
    }

    /// Cancels every command of this key: see [`Runner::cancel`](crate::Runner::cancel).
    pub fn cancel(&mut self, key: &K) -> bool
    where
        K: PartialEq,
    {
        self.pushed.cancel(key)
    }

    /// Cancels all commands: see [`Runner::cancel_all`](crate::Runner::cancel_all).
    pub fn cancel_all(&mut self) {
        self.pushed.cancel_all();
    }

    /// Cancels the queued commands: see [`Runner::cancel_queued`](crate::Runner::cancel_queued).
    pub fn cancel_queued(&mut self) {
        self.pushed.cancel_queued();
    }

    /// Waits until a command ends, and returns its key and its result, or `None` if nothing is left. More can be pushed
    /// afterwards.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call continues. So you can limit the wait with
    /// `tokio::time::timeout`, and wait for other events with `tokio::select!`, then push commands.
    ///
    /// # Errors
    /// Those of [`Runner`](crate::Runner#results). Outside a tokio runtime, every result is an `Unsupported` error.
    pub async fn next(&mut self) -> Option<(K, Result<Capture, Error>)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<KeyedEnd<K>>> {
        let AsyncRunner { pushed, watch } = self;
        poll_within_budget(cx, |cx| {
            let PushQueue { queue, running, .. } = pushed;
            running.poll_end(queue, watch, cx).map(|end| end.and_then(|end| pushed.with_key(end)))
        })
    }
}

/// No field is structurally pinned.
impl<K> Unpin for AsyncRunner<K> {}

impl<K> Stream for AsyncRunner<K> {
    type Item = (K, Result<Capture, Error>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
