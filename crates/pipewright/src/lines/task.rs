//! Output of a child, line by line, for tasks.

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

/// The lines of a running child for a task, from [`Command::lines_async`](crate::Command::lines_async). See
/// [`Lines`].
///
/// Implements [`Stream`]; or call [`next`](Self::next) in a loop.
///
/// # Drop
/// As for [`Lines`].
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
    /// Declared before the run, so dropped first: it holds copies of the run's handles.
    watch: Watch,
    lines: Lines,
}

impl AsyncLines {
    pub(crate) fn new(lines: Lines) -> AsyncLines {
        AsyncLines { watch: Watch::default(), lines }
    }

    /// Returns the process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lines.pid()
    }

    /// Takes the parent's end of the child's stdin, like [`Lines::take_stdin`]. Convert it with
    /// [`into_async`](crate::PipeWriter#method.into_async). To write a lot, use another task or write concurrently
    /// with [`next`](Self::next), for the reason given there.
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.lines.take_stdin()
    }

    /// Returns the next line, or `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call continues. Outside a tokio runtime the item is an
    /// `Unsupported` error, and nothing is lost either.
    pub async fn next(&mut self) -> Option<Result<Line, Error>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Waits for the next line, for at most `limit`, like [`Lines::next_within`].
    ///
    /// # Cancellation
    /// As for [`next`](Self::next).
    pub async fn next_within(&mut self, limit: Duration) -> Next<Result<Line, Error>> {
        let until = Instant::now().checked_add(limit);
        poll_fn(|cx| poll_within_budget(cx, |cx| self.poll_line(cx, until))).await
    }

    /// Reads and discards the rest, waits for the child, and returns its [`Ending`], like [`Lines::finish`].
    ///
    /// # Cancellation
    /// Dropping the future drops the lines.
    ///
    /// # Errors
    /// Those of [`Lines::finish`].
    pub async fn finish(mut self) -> Result<Ending, Error> {
        let AsyncLines { watch, lines } = &mut self;
        poll_fn(|cx| lines.run.poll_ending(cx, watch)).await
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
        lines.poll_next_by(until, |run| run.poll(cx, watch, until))
    }
}

impl Stream for AsyncLines {
    type Item = Result<Line, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
