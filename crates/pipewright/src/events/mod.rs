//! What happens to a child, as it happens.

#[cfg(feature = "tokio")]
mod task;

use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use crate::ChildStdin;
use crate::error::Error;
use crate::next::Next;
use crate::outcome::Source;
use crate::output::Ending;
use crate::run::Steps;
#[cfg(feature = "tokio")]
pub use task::AsyncEvents;

/// Something that happened to a child.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was started, and has this process id. The first event.
    Started(u32),
    /// It wrote these bytes to stdout. Never empty; how its writes are cut into events is chance.
    Stdout(Vec<u8>),
    /// It wrote these bytes to stderr. Never empty.
    Stderr(Vec<u8>),
    /// It has ended and everything that it wrote has been told. The last event.
    Exited(Ending),
}

/// The events of a running child, in the order in which they arrive.
///
/// Made by [`Command::events`](crate::Command::events). Nothing is read ahead of the caller but one
/// buffer of each stream: a child that writes faster than its events are taken waits. The command's
/// timeouts, limits and its cancel token hold while an event is waited for; between two calls nobody
/// looks at them, and one that has passed meanwhile stops the child at the next call. Whoever takes long
/// between two events sets [`enforce_in_background`](crate::Command::enforce_in_background), or calls
/// [`next_within`](Self::next_within) meanwhile. Bytes are handed out as soon as they have come.
///
/// # Drop
/// The streams are closed: the child is not killed, but it gets SIGPIPE when it next writes, as it
/// would from `| head`. It is reaped in the background. [`finish`](Self::finish) waits for it
/// instead.
#[derive(Debug)]
pub struct Events {
    steps: Steps,
    started: bool,
}

impl Events {
    pub(crate) fn new(steps: Steps) -> Events {
        Events { steps, started: false }
    }

    /// The process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.steps.pid()
    }

    /// Takes our end of the child's stdin, where the command set that to
    /// [`Stdio::piped`](crate::Stdio::piped). `None`: it did not, or it is too late.
    ///
    /// It has to be taken before the first event after [`Event::Started`] is waited for: that wait closes what nobody has taken, so that a child which
    /// reads to the end of its input finds one.
    ///
    /// Whoever writes much has to do that on another thread. A child that waits until somebody takes its output does
    /// not read meanwhile, and the write waits for the child: nothing goes on. Input that is known beforehand is safe in
    /// any amount as [`Stdio::bytes`](crate::Stdio::bytes).
    ///
    /// ```
    /// use pipewright::{Command, Event, Stdio};
    /// use std::io::Write;
    /// // A dialogue: what is said is answered before more is said.
    /// let mut events = Command::new("cat").stdin(Stdio::piped()).events()?;
    /// let mut stdin = events.take_stdin();
    /// stdin.as_mut().unwrap().write_all(b"ping").unwrap();
    /// for event in events {
    ///     if let Event::Stdout(said) = event? {
    ///         assert_eq!(said, b"ping");
    ///         stdin = None;
    ///     }
    /// }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.steps.take_stdin()
    }

    /// Waits for the next event, but not longer than that: for whoever has something else to do now and
    /// then. Zero takes what has come. What the command's time or its cancel token has made necessary is
    /// done by each call.
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
        // A limit so long that the clock cannot hold its end is none.
        self.next_until(Instant::now().checked_add(limit))
    }

    fn next_until(&mut self, until: Option<Instant>) -> Next<Result<Event, Error>> {
        match self.poll_next_by(until, |steps| Poll::Ready(steps.step_until(until))) {
            Poll::Ready(next) => next,
            // Cannot happen: such a step is never pending.
            Poll::Pending => Next::Pending,
        }
    }

    /// Returns the next event, by steps that block or by steps that are polled.
    fn poll_next_by(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Steps) -> Poll<Result<bool, Error>>,
    ) -> Poll<Next<Result<Event, Error>>> {
        let mut is_late = false;
        loop {
            if let Some(event) = self.take() {
                return Poll::Ready(Next::Item(Ok(event)));
            }
            if is_late {
                return Poll::Ready(Next::Pending);
            }
            match ready!(step(&mut self.steps)) {
                Ok(true) => is_late = until.is_some_and(|until| Instant::now() >= until),
                Ok(false) => return Poll::Ready(self.end()),
                Err(error) => return Poll::Ready(Next::Item(Err(error))),
            }
        }
    }

    /// The last event, once.
    fn end(&mut self) -> Next<Result<Event, Error>> {
        match self.steps.ending() {
            Some(ended) => Next::Item(ended.map(Event::Exited)),
            None => Next::Done,
        }
    }

    /// Reads the rest without keeping it, waits for the child, and tells how it ended.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running. Also where
    /// [`Event::Exited`] has been handed out already.
    pub fn finish(self) -> Result<Ending, Error> {
        self.steps.finish()
    }

    fn take(&mut self) -> Option<Event> {
        if !self.started {
            self.started = true;
            return Some(Event::Started(self.pid()));
        }
        for source in [Source::Stdout, Source::Stderr] {
            let Some(chunk) = self.steps.take(source) else { continue };
            let bytes = self.keep_buffer(source, chunk.bytes);
            if bytes.is_empty() {
                // The end of the stream: that of the child is told by itself.
                continue;
            }
            return Some(match source {
                Source::Stdout => Event::Stdout(bytes),
                Source::Stderr => Event::Stderr(bytes),
            });
        }
        None
    }

    /// The bytes to hand out. A few of them are copied, so that whoever keeps many events does not
    /// keep as many buffers.
    fn keep_buffer(&mut self, source: Source, mut buffer: Vec<u8>) -> Vec<u8> {
        if buffer.len() > buffer.capacity() / 2 {
            return buffer;
        }
        let bytes = buffer.as_slice().to_owned();
        buffer.clear();
        self.steps.give_back(source, buffer);
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
