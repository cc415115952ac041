//! Events of a child, as they happen.

use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use crate::ChildStdin;
use crate::error::Error;
use crate::outcome::Source;
use crate::output::Ending;
use crate::run::{Next, Run, RunDescriptor, poll_next_by};
#[cfg(feature = "tokio")]
use crate::running_output::running_stream;
use crate::running_output::running_verbs;

/// An event in the life of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "the large one is the last event of a run")]
pub enum Event {
    /// The child was started, with this process id. The first event.
    Started(u32),
    /// The child wrote these bytes to stdout. Never empty. Its writes may be split or joined.
    Stdout(Vec<u8>),
    /// The child wrote these bytes to stderr. Never empty.
    Stderr(Vec<u8>),
    /// The child has ended, and all of its output was returned. The last event.
    Exited(Ending),
}

/// An iterator over the events of a running child, in the order of arrival.
///
/// Made by [`Command::events`](crate::Command::events). At most one buffer of each stream is read ahead: a child
/// that writes faster than its events are taken blocks. Bytes are returned as soon as they have arrived. The
/// command's timeouts, limits and cancel token apply while you wait for an event. Between two calls nothing
/// enforces them; a timeout that has expired meanwhile stops the child at the next call. If your code takes long
/// between two events, set [`enforce_in_background`](crate::Command::enforce_in_background), or call
/// [`next_within`](Self::next_within) meanwhile. After a stop, the remaining output is returned, then
/// [`Event::Exited`] with the [`outcome`](crate::Captured::outcome).
///
/// # Drop
/// Closes the streams. The child is not killed, but gets SIGPIPE at its next write, as with `| head`. It is reaped
/// in the background. To wait for the child, call [`finish`](Self::finish).
#[derive(Debug)]
pub struct Events {
    /// Declared before the run, so dropped first: it waits for the run's handles.
    descriptor: RunDescriptor,
    run: Run,
    started: bool,
}

running_verbs!(Events);

impl Events {
    pub(crate) fn new(run: Run) -> Events {
        Events { descriptor: RunDescriptor::default(), run, started: false }
    }

    /// Takes the parent's end of the child's stdin, if the command set stdin to
    /// [`Stdio::piped`](crate::Stdio::piped). Returns `None` otherwise, or if it is too late.
    ///
    /// Take it before the first wait for an event after [`Event::Started`]. That wait closes a stdin that was not
    /// taken, so that a child that reads to the end of its input ends.
    ///
    /// To write a lot, use another thread. A child that blocks because its output is not taken does not read its
    /// input either, so a write on this thread would block forever. No timeout ends such a write, unless
    /// [`enforce_in_background`](crate::Command::enforce_in_background) is set: then it fails with `BrokenPipe` once
    /// the child is stopped. For input known in advance, [`Stdio::bytes`](crate::Stdio::bytes) is safe at any length.
    ///
    /// ```
    /// use pipewright::{Command, Event, Stdio};
    /// use std::io::Write;
    /// // A dialogue: wait for each answer before writing more.
    /// let mut events = Command::new("cat").stdin(Stdio::piped()).events()?;
    /// let mut stdin = events.take_stdin();
    /// stdin.as_mut().unwrap().write_all(b"ping").unwrap();
    /// for event in events {
    ///     if let Event::Stdout(bytes) = event? {
    ///         assert_eq!(bytes, b"ping");
    ///         stdin = None;
    ///     }
    /// }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.run.take_stdin()
    }

    /// Waits for the next event, for at most `limit`, for callers that also have other work. Zero returns only
    /// events that have already arrived. Each call enforces the command's timeouts and its cancel token.
    ///
    /// ```
    /// use pipewright::{Command, Event, Next};
    /// use std::time::Duration;
    /// let mut events = Command::new("sleep").arg("60").kill_on_drop().events()?;
    /// assert!(matches!(events.next(), Some(Ok(Event::Started(_)))));
    /// assert!(matches!(events.next_within(Duration::from_millis(10)), Next::Pending));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn next_within(&mut self, limit: Duration) -> Next<Result<Event, Error>> {
        // A limit too long for the clock means no limit.
        self.next_until(Instant::now().checked_add(limit))
    }

    fn next_until(&mut self, until: Option<Instant>) -> Next<Result<Event, Error>> {
        match self.poll_next_by(until, |run| Poll::Ready(run.step(until))) {
            Poll::Ready(next) => next,
            // Cannot happen: this step is never pending.
            Poll::Pending => Next::Pending,
        }
    }

    /// Returns the next event. The step either blocks or is polled.
    fn poll_next_by(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Run) -> Poll<Result<bool, Error>>,
    ) -> Poll<Next<Result<Event, Error>>> {
        let take = |events: &mut Events| events.take().map(Ok);
        let next = ready!(poll_next_by(self, until, take, |events| step(&mut events.run)));
        // The end of the run is the last event.
        Poll::Ready(if let Next::Done = next { self.end() } else { next })
    }

    /// Returns the last event, once.
    fn end(&mut self) -> Next<Result<Event, Error>> {
        match self.run.ending() {
            Some(ended) => Next::Item(ended.map(Event::Exited)),
            None => Next::Done,
        }
    }

    /// Reads and discards the rest, waits for the child, and returns its [`Ending`]. This also works after
    /// [`Event::Exited`].
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    pub fn finish(self) -> Result<Ending, Error> {
        self.run.finish_ending()
    }

    fn take(&mut self) -> Option<Event> {
        if !self.started {
            self.started = true;
            return Some(Event::Started(self.pid()));
        }
        for source in [Source::Stdout, Source::Stderr] {
            let Some(chunk) = self.run.take(source) else { continue };
            let bytes = self.keep_buffer(source, chunk.bytes);
            if bytes.is_empty() {
                // The end of this stream; the end of the child is an event of its own.
                continue;
            }
            return Some(match source {
                Source::Stdout => Event::Stdout(bytes),
                Source::Stderr => Event::Stderr(bytes),
            });
        }
        None
    }

    /// Returns the bytes to hand out. A short chunk is copied, so that stored events do not keep whole buffers.
    fn keep_buffer(&mut self, source: Source, mut buffer: Vec<u8>) -> Vec<u8> {
        if buffer.len() > buffer.capacity() / 2 {
            return buffer;
        }
        let bytes = buffer.as_slice().to_owned();
        buffer.clear();
        self.run.give_back(source, buffer);
        bytes
    }
}

impl Iterator for Events {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        self.next_until(None).item()
    }
}

impl std::iter::FusedIterator for Events {}

#[cfg(feature = "tokio")]
running_stream! {
    /// The events of a running child for a task, from
    /// [`Command::events_async`](crate::Command::events_async). See [`Events`].
    ///
    /// Implements [`Stream`](futures_core::Stream); or call [`next`](Self::next) in a loop.
    ///
    /// # Drop
    /// As for [`Events`].
    AsyncEvents, Events, Event, "event"
}
