//! Runs of many commands at once, in one task.
//!
//! A wake-up does not tell the task its cause. If each one meant polling all members, every line of one of a thousand
//! children would cost a thousand polls. So each member has a waker that marks it as due, and wakes the task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{io, mem};

use futures_core::Stream;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot, Watch};
use tokio::task::yield_now;

use super::run_set::{KeyedEnd, PushQueue};
use super::{
    CommandEnd, CommandSource, NextStep, Numbered, Queue, RunAll, Runnable, RunningSet, in_order,
};
use crate::cancel::CancelToken;
use crate::error::{Error, FailedOperation};
use crate::output::{Capture, Output, into_text};
use crate::run::{Next, Run, RunFuture, check_runtime, poll_within_budget};

/// For tasks of a tokio runtime: feature `tokio`.
impl<'a, I> RunAll<I>
where
    I: Iterator<Item: Into<Runnable<'a>>> + Unpin,
{
    /// Runs the commands as [`captures`](Self::captures) does, without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future kills the running commands, and starts no more.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use pipewright::{Command, run_all};
    /// let hosts = ["one", "two", "three"];
    /// let captures = run_all(hosts.map(|host| Command::new("echo").arg(host).owned())).captures_async().await;
    /// assert_eq!(captures.into_iter().filter(|capture| capture.is_ok()).count(), 3);
    /// # });
    /// ```
    pub async fn captures_async(self) -> Vec<Result<Capture, Error>> {
        let (mut ends, mut all) = (self.as_they_end_async(), Vec::new());
        while let Some(end) = ends.next().await {
            all.push(end);
        }
        in_order(all)
    }

    /// Returns a stream of the results as the commands end, as [`as_they_end`](Self::as_they_end) does for a thread.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsTheyEndAsync::next`].
    pub fn as_they_end_async(self) -> AsTheyEndAsync<I> {
        AsTheyEndAsync {
            queue: self.into_queue(),
            members: RunningCommands::default(),
            watch: Watch::default(),
        }
    }
}

/// The results of many commands, as they end: see [`RunAll::as_they_end_async`].
///
/// # Drop
/// Kills the running commands, and the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEndAsync<I: Iterator> {
    queue: Queue<Numbered<I>>,
    members: RunningCommands,
    /// The registration of the cancel token.
    watch: Watch,
}

#[derive(Debug, Default)]
pub(super) struct RunningCommands {
    members: Vec<RunningCommand>,
    task: Arc<TaskWaker>,
    /// The number of bursts of starts so far.
    bursts: usize,
    /// The results of the poll that is under way. The panic of another member does not lose them.
    ends: Vec<CommandEnd>,
    /// The registration of the time at which the next command may start.
    due: Watch,
}

#[derive(Debug)]
struct RunningCommand {
    index: usize,
    /// The burst in which it was started.
    burst: usize,
    due: Arc<CommandWaker>,
    /// Makes it due.
    waker: Waker,
    run: RunFuture,
}

impl<'a, I> AsTheyEndAsync<I>
where
    I: Iterator<Item: Into<Runnable<'a>>> + Unpin,
{
    /// Returns the next result, with the number of its command, counted from 0, or `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call continues.
    ///
    /// # Errors
    /// Outside a tokio runtime nothing is started, and the results are `Unsupported` errors. If commands are already
    /// running, the call returns the error for one of them. That command keeps running, and a later call in a runtime
    /// also returns its own result.
    pub async fn next(&mut self) -> Option<(usize, Result<Capture, Error>)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Waits as [`AsTheyEnd::next_within`](crate::AsTheyEnd::next_within) does, without blocking the thread.
    ///
    /// # Cancellation
    /// As for [`next`](Self::next).
    pub async fn next_within(&mut self, limit: Duration) -> Next<(usize, Result<Capture, Error>)> {
        let until = Instant::now().checked_add(limit);
        let mut timer = Watch::default();
        let wait = poll_fn(|cx| {
            if let Poll::Ready(end) = self.poll(cx) {
                return Poll::Ready(end.map_or(Next::Done, Next::Item));
            }
            match timer.poll_wait(cx, &mut [], until) {
                Poll::Ready(_) if until.is_some() => Poll::Ready(Next::Pending),
                _ => Poll::Pending,
            }
        });
        wait.await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Capture, Error>)>> {
        let AsTheyEndAsync { queue, members, watch } = self;
        poll_within_budget(cx, |cx| members.poll_end(queue, watch, cx))
    }
}

impl<'a, I> Stream for AsTheyEndAsync<I>
where
    I: Iterator<Item: Into<Runnable<'a>>> + Unpin,
{
    type Item = (usize, Result<Capture, Error>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}

impl RunningSet for RunningCommands {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn start(&mut self, index: usize, mut command: Runnable<'_>) -> Result<(), Error> {
        check_runtime(&command.name(), FailedOperation::Start)?;
        self.members.push(RunningCommand::new(index, self.bursts, command.start()?, &self.task));
        Ok(())
    }

    fn stop(&mut self) {
        self.members.iter_mut().for_each(RunningCommand::stop);
    }

    fn stop_one(&mut self, index: usize) -> bool {
        let member = self.members.iter_mut().find(|member| member.index == index);
        member.map(RunningCommand::stop).is_some()
    }
}

impl RunningCommands {
    /// Polls for the next result; `None` if nothing is left to wait for.
    fn poll_end(
        &mut self,
        queue: &mut Queue<impl CommandSource>,
        watch: &mut Watch,
        cx: &mut Context<'_>,
    ) -> Poll<Option<CommandEnd>> {
        if let Err(error) = wait::check_runtime() {
            if let Some(end) = self.unsupported_end(error) {
                return Poll::Ready(Some(end));
            }
        }
        loop {
            self.handle_cancel(queue.cancel(), watch, cx);
            let waits = match queue.next(self) {
                NextStep::End(end) => return Poll::Ready(Some(end)),
                NextStep::Wait => {
                    let due = queue.next_due(self);
                    if due.is_none() && self.len() == 0 {
                        return Poll::Ready(None);
                    }
                    if due.is_some() {
                        match self.due.poll_wait(cx, &mut [], due) {
                            Poll::Pending => {}
                            Poll::Ready(Ok(_)) => continue,
                            // Without a runtime: started now, they fail as all do.
                            Poll::Ready(Err(_)) => {
                                queue.source.hurry();
                                continue;
                            }
                        }
                    }
                    true
                }
                NextStep::Poll => false,
            };
            let ends = self.poll(cx, !waits);
            if ends.is_empty() && waits {
                return Poll::Pending;
            }
            for end in ends {
                queue.note(end, self);
            }
            // Before more starts, the runtime polls its sources, and other tasks get their turn.
            if !waits && pin!(yield_now()).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Registers the token, so that it wakes the task, and forwards its signals. The queue itself checks if it is
    /// cancelled.
    fn handle_cancel(&self, cancel: Option<&CancelToken>, watch: &mut Watch, cx: &mut Context<'_>) {
        let Some(token) = cancel else { return };
        // Ignored: a token without a flag is checked when something else wakes this task.
        let Ok(wake) = token.wake() else { return };
        // Until the flag is lowered: only then does the next cancel or signal wake this task.
        while let Poll::Ready(Ok(_)) = watch.poll_wait(cx, &mut [Slot::Event(wake)], None) {
            for signal in token.take_signals() {
                self.forward(signal);
            }
            if token.is_cancelled() {
                return;
            }
        }
    }

    /// Polls the members that are due, and removes those that have ended.
    ///
    /// `skip_newest` leaves the newest burst for the next poll. Most short commands have ended by then, and need no
    /// registration with the runtime.
    fn poll(&mut self, cx: &Context<'_>, skip_newest: bool) -> Vec<CommandEnd> {
        let newest = self.bursts;
        self.bursts += usize::from(skip_newest);
        if self.task.set_waker(cx) {
            self.members.iter().for_each(|member| member.due.set());
        }
        // From the end: the member that replaces a removed one has already been polled.
        for at in (0..self.members.len()).rev() {
            let Some(member) = self.members.get_mut(at) else { continue };
            if skip_newest && member.burst == newest {
                continue;
            }
            if let Some(Poll::Ready(output)) = member.poll() {
                let member = self.members.swap_remove(at);
                self.ends.push((member.index, member.decode(output)));
            }
        }
        mem::take(&mut self.ends)
    }

    /// Returns the result if no runtime drives the call: the first of the running commands cannot be waited for. It
    /// keeps running, and its own result is returned later.
    fn unsupported_end(&self, error: io::Error) -> Option<CommandEnd> {
        let first = self.members.iter().min_by_key(|member| member.index)?;
        Some((first.index, Err(Error::cannot(first.run.run().program(), "wait for", error))))
    }

    /// Sends a signal to all children.
    fn forward(&self, signal: Signal) {
        for member in &self.members {
            member.run.signal(signal);
        }
    }
}

impl RunningCommand {
    fn new(index: usize, burst: usize, run: Run, task: &Arc<TaskWaker>) -> RunningCommand {
        let due = CommandWaker::new(task);
        RunningCommand { index, burst, waker: Arc::clone(&due).into(), due, run: run.into_future() }
    }

    fn stop(&mut self) {
        self.run.stop();
        self.due.set();
    }

    /// Polls the run if it is due; otherwise returns `None`.
    fn poll(&mut self) -> Option<Poll<Result<Output, Error>>> {
        let mut cx = Context::from_waker(&self.waker);
        self.due.take().then(|| Pin::new(&mut self.run).poll(&mut cx))
    }

    fn decode(&self, output: Result<Output, Error>) -> Result<Capture, Error> {
        into_text(self.run.run().program(), self.run.run().settings().decoding, output?)
    }
}

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

    /// Queues a command that starts after this delay: see [`Runner::push_after`](crate::Runner::push_after).
    pub fn push_after(&mut self, delay: Duration, key: K, command: impl Into<Runnable<'static>>) {
        self.pushed.push_after(delay, key, command.into());
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

/// The waker of the task that polls all members.
#[derive(Debug)]
pub(super) struct TaskWaker(Mutex<Waker>);

/// The waker of one member, which is due when one of its events has arrived.
#[derive(Debug)]
pub(super) struct CommandWaker {
    due: AtomicBool,
    task: Arc<TaskWaker>,
}

impl Default for TaskWaker {
    fn default() -> TaskWaker {
        TaskWaker(Mutex::new(Waker::noop().clone()))
    }
}

impl TaskWaker {
    /// Sets the task to wake. Call it before any member is polled: events from then on wake this task. Returns true if
    /// it is another task than before, maybe in another runtime, which has to poll all members.
    fn set_waker(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker();
        if waker.will_wake(cx.waker()) {
            return false;
        }
        let old = mem::replace(&mut *waker, cx.waker().clone());
        drop(waker);
        // Outside the lock: dropping a foreign waker may call anything.
        drop(old);
        true
    }

    fn waker(&self) -> MutexGuard<'_, Waker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandWaker {
    /// Creates a waker whose member is due.
    pub(super) fn new(task: &Arc<TaskWaker>) -> Arc<CommandWaker> {
        Arc::new(CommandWaker { due: AtomicBool::new(true), task: Arc::clone(task) })
    }

    /// Marks the member as due, without waking the task.
    pub(super) fn set(&self) {
        self.due.store(true, Ordering::Release);
    }

    /// Returns true if the member was due, and clears that.
    pub(super) fn take(&self) -> bool {
        self.due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for CommandWaker {
    fn wake(self: Arc<CommandWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<CommandWaker>) {
        // If it was already due, the task has been woken and has not polled it yet.
        if !self.due.swap(true, Ordering::AcqRel) {
            let waker = self.task.waker().clone();
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_task_is_woken_once_per_poll_and_it_is_the_last_one_that_polled() {
        let (task, [first, second]) =
            (Arc::<TaskWaker>::default(), [(); 2].map(|()| Arc::new(Count::default())));
        let [one, other] = [(); 2].map(|()| CommandWaker::new(&task));
        let counts = || [&first, &second].map(|count| count.0.load(Ordering::Relaxed));
        assert!(one.take() && other.take(), "all are due at first");

        let poll =
            |count: &Arc<Count>| task.set_waker(&Context::from_waker(&Arc::clone(count).into()));
        assert!(poll(&first) && !poll(&first));
        let waker = Waker::from(Arc::clone(&one));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(counts(), [1, 0]);
        assert!(one.take() && !one.take() && !other.take());

        assert!(poll(&second));
        waker.wake();
        Waker::from(other).wake();
        assert_eq!(counts(), [1, 2]);
    }
}
