//! Both streams of a child, line by line, for a task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use pipewright_os::base::wait::Watch;

use super::{Line, Lines};
use crate::ChildStdin;
use crate::error::Error;
use crate::next::Next;
use crate::output::Ending;
use crate::runtime::poll_within_budget;

/// What [`Command::lines_async`](crate::Command::lines_async) gives: [`Lines`] for a task.
///
/// A [`Stream`], and without one [`next`](Self::next) in a `while let`.
///
/// # Drop
/// As that of [`Lines`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut lines = pipewright::Command::new("printf").arg(r"a\nb\n").lines_async()?;
/// while let Some(line) = lines.next().await {
///     println!("{}", line?.text);
/// }
/// assert!(lines.finish().await?.status.success());
/// # Ok::<(), pipewright::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct AsyncLines {
    /// Before the run: it holds copies of its handles.
    watch: Watch,
    lines: Lines,
}

impl AsyncLines {
    pub(crate) fn new(lines: Lines) -> AsyncLines {
        AsyncLines { watch: Watch::default(), lines }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lines.pid()
    }

    /// As [`Lines::take_stdin`]. [`into_async`](crate::PipeWriter#method.into_async) makes it one for tasks: write by
    /// another task, or together with [`next`](Self::next), for the same reason.
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.lines.take_stdin()
    }

    /// The next line; `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call goes on where this one was. Outside of a tokio
    /// runtime it gives an `Unsupported` error and loses nothing either.
    pub async fn next(&mut self) -> Option<Result<Line, Error>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// As [`Lines::next_within`].
    ///
    /// # Cancellation
    /// As with [`next`](Self::next).
    pub async fn next_within(&mut self, limit: Duration) -> Next<Result<Line, Error>> {
        let until = Instant::now().checked_add(limit);
        poll_fn(|cx| poll_within_budget(cx, |cx| self.poll_line(cx, until))).await
    }

    /// As [`Lines::finish`].
    ///
    /// # Cancellation
    /// Dropping the future is dropping the lines.
    ///
    /// # Errors
    /// As [`Lines::finish`].
    pub async fn finish(mut self) -> Result<Ending, Error> {
        let AsyncLines { watch, lines } = &mut self;
        poll_fn(|cx| lines.steps.poll_finish(cx, watch)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Line, Error>>> {
        poll_within_budget(cx, |cx| self.poll_line(cx, None)).map(Next::item)
    }

    fn poll_line(
        &mut self,
        cx: &mut Context<'_>,
        until: Option<Instant>,
    ) -> Poll<Next<Result<Line, Error>>> {
        let AsyncLines { watch, lines } = self;
        lines.poll_next_by(until, |steps| steps.poll_step(cx, watch, until))
    }
}

impl Stream for AsyncLines {
    type Item = Result<Line, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
