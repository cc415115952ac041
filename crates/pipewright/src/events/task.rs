//! What happens to a child, as it happens, for a task.

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

/// What [`Command::events_async`](crate::Command::events_async) gives: [`Events`] for a task.
///
/// A [`Stream`], and without one [`next`](Self::next) in a `while let`.
///
/// # Drop
/// As that of [`Events`].
#[derive(Debug)]
pub struct AsyncEvents {
    /// Before the run: it holds copies of its handles.
    watch: Watch,
    events: Events,
}

impl AsyncEvents {
    pub(crate) fn new(events: Events) -> AsyncEvents {
        AsyncEvents { watch: Watch::default(), events }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.events.pid()
    }

    /// As [`Events::take_stdin`]. [`into_async`](crate::PipeWriter#method.into_async) makes it one for tasks: write by
    /// another task, or together with [`next`](Self::next), for the same reason.
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.events.take_stdin()
    }

    /// The next event; `None` after the last.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing: the next call goes on where this one was. Outside of a tokio
    /// runtime it gives an `Unsupported` error and loses nothing either.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// As [`Events::next_within`].
    ///
    /// # Cancellation
    /// As with [`next`](Self::next).
    pub async fn next_within(&mut self, limit: Duration) -> Next<Result<Event, Error>> {
        let until = Instant::now().checked_add(limit);
        poll_fn(|cx| self.poll_until(cx, until)).await
    }

    /// As [`Events::finish`].
    ///
    /// # Cancellation
    /// Dropping the future is dropping the events.
    ///
    /// # Errors
    /// As [`Events::finish`].
    pub async fn finish(mut self) -> Result<Ending, Error> {
        let AsyncEvents { watch, events } = &mut self;
        poll_fn(|cx| events.steps.poll_finish(cx, watch)).await
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
        events.poll_next_by(until, |steps| steps.poll_step(cx, watch, until))
    }
}

impl Stream for AsyncEvents {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}
