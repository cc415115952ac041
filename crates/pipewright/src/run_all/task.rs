//! Many commands at once, by one task.

mod runner;
mod waker;

use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot, Watch};
use tokio::task::yield_now;

use super::{
    CommandSource, End, NextStep, Numbered, Queue, RunAll, Runnable, RunningSet, in_order,
};
use crate::cancel::CancelToken;
use crate::error::{Error, Operation};
use crate::next::Next;
use crate::output::{Capture, Output};
use crate::run::{ActiveRun, RunFuture};
use crate::runtime::{check_runtime, poll_within_budget};
use crate::text::{Decoding, into_text};
pub use runner::AsyncRunner;
use waker::{MemberWaker, TaskWaker};

/// For tasks of a tokio runtime: feature `tokio`.
impl<'a, I> RunAll<I>
where
    I: Iterator<Item: Into<Runnable<'a>>> + Unpin,
{
    /// As [`captures`](Self::captures), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future kills those that run, and starts no more.
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

    /// As [`as_they_end`](Self::as_they_end), for a task.
    ///
    /// # Cancellation
    /// What it gives is no future: see [`AsTheyEndAsync::next`].
    pub fn as_they_end_async(self) -> AsTheyEndAsync<I> {
        AsTheyEndAsync {
            queue: self.into_queue(),
            members: Members::default(),
            watch: Watch::default(),
        }
    }
}

/// What came of many commands, as they end: see [`RunAll::as_they_end_async`].
///
/// # Drop
/// Those that still run are killed, with the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEndAsync<I: Iterator> {
    queue: Queue<Numbered<I>>,
    members: Members,
    /// For the cancel.
    watch: Watch,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    members: Vec<Member>,
    task: Arc<TaskWaker>,
    /// How often others have been started since.
    bursts: usize,
}

#[derive(Debug)]
struct Member {
    index: usize,
    /// With whom it was started.
    burst: usize,
    due: Arc<MemberWaker>,
    /// Gives it its turn.
    waker: Waker,
    run: RunFuture,
    program: OsString,
    decoding: Decoding,
}

impl<'a, I> AsTheyEndAsync<I>
where
    I: Iterator<Item: Into<Runnable<'a>>> + Unpin,
{
    /// What ends next, with the number of its command, counted from 0; `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call goes on where this one was.
    ///
    /// Outside of a tokio runtime nothing is started, and the error of those that would be is
    /// `Unsupported`. Where some run already, it is the error of one of them, which goes on running: a
    /// call in a runtime tells of it again.
    pub async fn next(&mut self) -> Option<(usize, Result<Capture, Error>)> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// As [`AsTheyEnd::next_within`](crate::AsTheyEnd::next_within).
    ///
    /// # Cancellation
    /// As with [`next`](Self::next).
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

impl RunningSet for Members {
    fn len(&self) -> usize {
        self.members.len()
    }

    fn start(&mut self, index: usize, mut command: Runnable<'_>) -> Result<(), Error> {
        check_runtime(&command.name(), Operation::Start)?;
        self.members.push(Member::new(index, self.bursts, command.start()?, &self.task));
        Ok(())
    }

    fn stop(&mut self) {
        self.members.iter_mut().for_each(Member::stop);
    }

    fn stop_one(&mut self, index: usize) -> bool {
        let member = self.members.iter_mut().find(|member| member.index == index);
        member.map(Member::stop).is_some()
    }
}

impl Members {
    /// `None`: nothing is left to wait for.
    pub(super) fn poll_end(
        &mut self,
        queue: &mut Queue<impl CommandSource>,
        watch: &mut Watch,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        if let Err(error) = wait::check_runtime() {
            if let Some(refused) = self.refused(error) {
                return Poll::Ready(Some(refused));
            }
        }
        loop {
            self.handle_cancel(queue.cancel(), watch, cx);
            let waits = match queue.next(self) {
                NextStep::End(end) => return Poll::Ready(Some(end)),
                NextStep::Wait if self.len() == 0 => return Poll::Ready(None),
                NextStep::Wait => true,
                NextStep::Look => false,
            };
            let ends = self.poll(cx, !waits);
            if ends.is_empty() && waits {
                return Poll::Pending;
            }
            for end in ends {
                queue.note(end, self);
            }
            // Before more are started the runtime looks at its sources, and other tasks have their turn.
            if !waits && pin!(yield_now()).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Registers the token, so that it wakes the task, and passes its signals on. The queue itself
    /// asks if it is cancelled.
    fn handle_cancel(&self, cancel: Option<&CancelToken>, watch: &mut Watch, cx: &mut Context<'_>) {
        let Some(token) = cancel else { return };
        // Ignored: without a flag to wait for, the cancel is seen when something else wakes us.
        let Ok(wake) = token.wake() else { return };
        // Until it is lowered again, for only then the next time wakes us.
        while let Poll::Ready(Ok(_)) = watch.poll_wait(cx, &mut [Slot::Event(wake)], None) {
            for signal in token.take_signals() {
                self.pass_on(signal);
            }
            if token.is_cancelled() {
                return;
            }
        }
    }

    /// Goes on with each whose turn it is, and takes out those that are over.
    ///
    /// `but_the_last`: those that were started last are left for the next time. By then most of them have
    /// ended, if they are short, and need not be registered with the runtime.
    fn poll(&mut self, cx: &Context<'_>, but_the_last: bool) -> Vec<End> {
        let last = self.bursts;
        self.bursts += usize::from(but_the_last);
        if self.task.is_polled(cx) {
            self.members.iter().for_each(|member| member.due.set());
        }
        let mut ends = Vec::new();
        // From the end: what takes the place of one that is taken out has been looked at.
        for at in (0..self.members.len()).rev() {
            let Some(member) = self.members.get_mut(at) else { continue };
            if but_the_last && member.burst == last {
                continue;
            }
            if let Some(Poll::Ready(output)) = member.poll() {
                let member = self.members.swap_remove(at);
                ends.push((member.index, member.text_of(output)));
            }
        }
        ends
    }

    /// What is told where no runtime drives the call: that the first of those that run cannot be waited for. It is left
    /// alone, and told of again.
    fn refused(&self, error: io::Error) -> Option<End> {
        let first = self.members.iter().min_by_key(|member| member.index)?;
        Some((first.index, Err(Error::cannot(&first.program, "wait for", error))))
    }

    /// Ignored: who has ended needs no signal.
    fn pass_on(&self, signal: Signal) {
        for member in &self.members {
            member.run.signal(signal);
        }
    }
}

impl Member {
    fn new(index: usize, burst: usize, run: ActiveRun, task: &Arc<TaskWaker>) -> Member {
        let due = MemberWaker::new(task);
        Member {
            index,
            burst,
            waker: Arc::clone(&due).into(),
            due,
            program: run.program.clone(),
            decoding: run.options.decoding,
            run: run.into_future(),
        }
    }

    fn stop(&mut self) {
        self.run.stop();
        self.due.set();
    }

    /// `None`: it is not its turn.
    fn poll(&mut self) -> Option<Poll<Result<Output, Error>>> {
        let mut cx = Context::from_waker(&self.waker);
        self.due.take().then(|| Pin::new(&mut self.run).poll(&mut cx))
    }

    fn text_of(&self, output: Result<Output, Error>) -> Result<Capture, Error> {
        into_text(&self.program, self.decoding, output?)
    }
}
