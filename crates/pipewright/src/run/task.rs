//! A run for tasks: as a future, in a tokio runtime. Feature `tokio`.

use std::ffi::OsStr;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Watch};
use pipewright_os::process::child::ChildHandle;
use tokio::task::coop;

use super::run::{Phase, Resumed, Run};
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::output::{Ending, Output};

impl Run {
    /// Polls [`step`](Self::step). `Pending`, or the error of a missing runtime, leaves the state unchanged. After
    /// another error the children are killed, and not waited for: that would block the task.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
    ) -> Poll<Result<bool, Error>> {
        if self.phase != Phase::Running {
            return Poll::Ready(Ok(false));
        }
        // Before anything else: the next call may be made in a runtime.
        check_runtime_to_wait(self.program())?;
        drop(self.take_stdin());
        let stepped = self.with(|Resumed { state, children, rules }| {
            state.poll_step(cx, watch, until, children, rules)
        });
        let stepped = ready!(stepped.unwrap_or(Poll::Ready(Ok(false))));
        if stepped.is_err() {
            self.kill();
        }
        Poll::Ready(self.note(stepped))
    }

    /// Takes a single step.
    #[cfg(pipewright_test_hooks)]
    pub(super) async fn step_async(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let mut watch = Watch::default();
        poll_fn(|cx| self.poll(cx, &mut watch, until)).await
    }

    /// Steps to the end, and returns the result with the kept bytes of the streams.
    fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
    ) -> Poll<Result<Output, Error>> {
        while ready!(self.poll(cx, watch, None))? {}
        // Drops the registrations, which would keep a pipe open.
        *watch = Watch::default();
        Poll::Ready(self.output().unwrap_or_else(|| Err(self.already_reported())))
    }

    /// Reads and discards the rest, and returns the result without streams.
    pub(crate) fn poll_ending(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
    ) -> Poll<Result<Ending, Error>> {
        self.keep_nothing();
        self.poll_output(cx, watch).map_ok(Output::without_streams)
    }

    /// Runs to the end as [`finish`](Self::finish) does, without blocking the thread. Dropping the future leaves the
    /// children running.
    pub(crate) async fn finish_async(&mut self) -> Result<Output, Error> {
        let mut watch = Watch::default();
        poll_fn(|cx| self.poll_output(cx, &mut watch)).await
    }

    /// Converts the run to a future that kills the children if it is dropped.
    pub(crate) fn into_future(self) -> RunFuture {
        RunFuture { watch: Watch::default(), run: self.enforced() }
    }
}

/// A future that runs children to their ends.
///
/// # Drop
/// Kills the children that still run: nobody is left to ask for the result.
#[derive(Debug)]
pub(crate) struct RunFuture {
    /// Dropped before the run, because it holds copies of its handles.
    watch: Watch,
    run: Run,
}

impl RunFuture {
    /// Returns the run.
    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the children.
    pub(crate) fn children(&self) -> &[ChildHandle] {
        self.run.children()
    }

    /// Stops the children, as a cancel does.
    pub(crate) fn stop(&mut self) {
        self.run.stop();
    }

    /// Sends a signal to the children. Errors are ignored: a child has ended, or has changed its user.
    pub(crate) fn signal(&self, signal: Signal) {
        for child in self.run.children() {
            let _ = child.signal(signal);
        }
    }
}

impl Future for RunFuture {
    type Output = Result<Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let RunFuture { watch, run } = &mut *self;
        run.poll_output(cx, watch)
    }
}

impl Drop for RunFuture {
    fn drop(&mut self) {
        self.run.kill();
    }
}

/// Fails if no tokio runtime drives the call. Called before anything else is done.
pub(crate) fn check_runtime(program: &OsStr, operation: FailedOperation) -> Result<(), Error> {
    wait::check_runtime()
        .map_err(|error| Error::new(program, operation, ErrorKind::Unsupported, Some(error)))
}

/// Fails if no tokio runtime drives a call that waits for a running child.
pub(crate) fn check_runtime_to_wait(program: &OsStr) -> Result<(), Error> {
    check_runtime(program, FailedOperation::Child("wait for"))
}

/// Polls within the task's budget, so that other tasks get their turn: a batch may have thousands of lines that are all
/// ready at once.
pub(crate) fn poll_within_budget<T>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let turn = ready!(coop::poll_proceed(cx));
    let value = ready!(poll(cx));
    turn.made_progress();
    Poll::Ready(value)
}
