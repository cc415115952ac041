//! Events of a child, as they happen, for tasks.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use pipewright_os::base::wait::Watch;

use super::{Event, Events};
use crate::ChildStdin;
use crate::error::Error;
use crate::next::Next;
use crate::output::Ending;

/// The events of a running child for a task, from [`Command::events_async`](crate::Command::events_async). See
/// [`Events`].
///
/// Implements [`Stream`]; or call [`next`](Self::next) in a loop.
///
/// # Drop
/// As for [`Events`].
#[derive(Debug)]
pub struct AsyncEvents {
    /// Declared before the run, so dropped first: it holds copies of the run's handles.
    watch: Watch,
    events: Events,
}

impl AsyncEvents {
    pub(crate) fn new(events: Events) -> AsyncEvents {
        AsyncEvents { watch: Watch::default(), events }
    }

    /// Returns the process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.events.pid()
    }

    /// Takes the parent's end of the child's stdin, like [`Events::take_stdin`]. Convert it with
    /// [`into_async`](crate::PipeWriter#method.into_async). To write a lot, use another task or write concurrently
    /// with [`next`](Self::next), for the reason given there.
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.events.take_stdin()
    }

    /// Returns the next event, or `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call continues. Outside a tokio runtime the item is an
    /// `Unsupported` error, and nothing is lost either.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Waits for the next event, for at most `limit`, like [`Events::next_within`].
    ///
    /// # Cancellation
    /// As for [`next`](Self::next).
    pub async fn next_within(&mut self, limit: Duration) -> Next<Result<Event, Error>> {
        let until = Instant::now().checked_add(limit);
        poll_fn(|cx| self.poll_until(cx, until)).await
    }

    /// Reads and discards the rest, waits for the child, and returns its [`Ending`], like [`Events::finish`].
    ///
    /// # Cancellation
    /// Dropping the future drops the events.
    ///
    /// # Errors
    /// Those of [`Events::finish`].
    pub async fn finish(mut self) -> Result<Ending, Error> {
        let AsyncEvents { watch, events } = &mut self;
        poll_fn(|cx| events.run.poll_ending(cx, watch)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Error>>> {
        self.poll_until(cx, None).map(Next::item)
    }

    fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        until: Option<Instant>,
    ) -> Poll<Next<Result<Event, Error>>> {
        let AsyncEvents { watch, events } = self;
        events.poll_next_by(until, |run| run.poll(cx, watch, until))
    }
}

impl Stream for AsyncEvents {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
