//! A runner for a task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use pipewright_os::base::wait::Watch;

use super::Members;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;
use crate::run_all::Runnable;
use crate::run_all::push_queue::{KeyedEnd, PushQueue};
use crate::runtime::poll_within_budget;

/// The [`Runner`](crate::Runner) of a task: the same rules, and it blocks no thread (feature
/// `tokio`).
///
/// It is also a `Stream`. After that has ended, more can be pushed.
///
/// # Drop
/// Kills the commands that run, and the descendants that can be found, and does not wait for them.
/// The queued ones are never started.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use pipewright::{AsyncRunner, Command};
///
/// // A graph: what a command makes possible is pushed when it has ended.
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
    pushed: PushQueue<K, Members>,
    /// For the token.
    watch: Watch,
}

impl<K> AsyncRunner<K> {
    /// Creates a runner of that many commands at once, at least one.
    pub fn new(concurrency: usize) -> AsyncRunner<K> {
        AsyncRunner { pushed: PushQueue::new(concurrency), watch: Watch::default() }
    }

    /// As [`Runner::with_cancel`](crate::Runner::with_cancel).
    pub fn with_cancel(mut self, token: &CancelToken) -> AsyncRunner<K> {
        self.pushed.cancel_on(token);
        self
    }

    /// As [`Runner::with_drain`](crate::Runner::with_drain).
    pub fn with_drain(mut self, token: &CancelToken) -> AsyncRunner<K> {
        self.pushed.drain_on(token);
        self
    }

    /// As [`Runner::set_concurrency`](crate::Runner::set_concurrency).
    pub fn set_concurrency(&mut self, count: usize) {
        self.pushed.set_concurrency(count);
    }

    /// As [`Runner::push`](crate::Runner::push). Nothing is started before [`next`](Self::next) is
    /// polled.
    pub fn push(&mut self, key: K, command: impl Into<Runnable<'static>>) {
        self.pushed.push(key, command.into());
    }

    /// As [`Runner::len`](crate::Runner::len).
    #[must_use]
    pub fn len(&self) -> usize {
        self.pushed.len()
    }

    /// As [`Runner::is_empty`](crate::Runner::is_empty).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Runner::running`](crate::Runner::running).
    #[must_use]
    pub fn running(&self) -> usize {
        self.pushed.running()
    }

    /// As [`Runner::queued`](crate::Runner::queued).
    #[must_use]
    pub fn queued(&self) -> usize {
        self.pushed.queued()
    }

    /// As [`Runner::cancel`](crate::Runner::cancel).
    pub fn cancel(&mut self, key: &K) -> bool
    where
        K: PartialEq,
    {
        self.pushed.cancel(key)
    }

    /// As [`Runner::cancel_all`](crate::Runner::cancel_all).
    pub fn cancel_all(&mut self) {
        self.pushed.cancel_all();
    }

    /// As [`Runner::cancel_queued`](crate::Runner::cancel_queued).
    pub fn cancel_queued(&mut self) {
        self.pushed.cancel_queued();
    }

    /// Waits until a command ends, and returns its key and its result; `None`: nothing is left. More
    /// can be pushed afterwards.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call goes on where this one was. So a limit is
    /// `tokio::time::timeout`, and `tokio::select!` can wait for something else as well, and push
    /// what comes of that.
    ///
    /// # Errors
    /// As [`Runner`](crate::Runner#results); outside of a tokio runtime, each is `Unsupported`.
    pub async fn next(&mut self) -> Option<(K, Result<Capture, Error>)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<KeyedEnd<K>>> {
        let AsyncRunner { pushed, watch } = self;
        poll_within_budget(cx, |cx| {
            let PushQueue { queue, running, .. } = pushed;
            running.poll_end(queue, watch, cx).map(|end| end.and_then(|end| pushed.keyed(end)))
        })
    }
}

/// Nothing in it is pinned.
impl<K> Unpin for AsyncRunner<K> {}

impl<K> Stream for AsyncRunner<K> {
    type Item = (K, Result<Capture, Error>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
