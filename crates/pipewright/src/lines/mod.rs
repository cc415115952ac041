//! Both streams of a child, line by line.

mod batch;
mod splitter;
#[cfg(feature = "tokio")]
mod task;

use std::mem;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use batch::Batch;
use splitter::Splitter;
#[cfg(feature = "tokio")]
pub use task::AsyncLines;

use crate::ChildStdin;
use crate::error::{Error, ErrorKind, Operation};
use crate::next::Next;
use crate::outcome::Source;
use crate::output::Ending;
use crate::run::{Chunk, Steps};
use crate::text::{Decoding, NotUtf8};

/// A line that a child wrote, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The stream that it came from.
    pub source: Source,
    /// What it says.
    pub text: String,
    /// It was longer than [`Command::max_line`](crate::Command::max_line), and this is its start.
    pub truncated: bool,
}

impl Default for Line {
    /// An empty line of stdout: a place for [`Lines::next_into`] to put lines.
    fn default() -> Line {
        Line { source: Source::Stdout, text: String::new(), truncated: false }
    }
}

/// The lines of a running child, both streams in the order in which they arrive.
///
/// Made by [`Command::lines`](crate::Command::lines) and
/// [`Child::read_all_lines`](crate::Child::read_all_lines). Nothing is read ahead of the caller but
/// one buffer of each stream: a child that writes faster than its lines are taken waits. The
/// command's timeouts, limits and its cancel token hold while a line is waited for; between two calls
/// nobody looks at them, and one that has passed meanwhile stops the child at the next call. Whoever
/// takes long between two lines sets
/// [`enforce_in_background`](crate::Command::enforce_in_background), or calls
/// [`next_within`](Self::next_within) meanwhile. A line is handed out as soon as its end has come.
///
/// # Drop
/// The streams are closed: the child is not killed, but it gets SIGPIPE when it next writes, as it
/// would from `| head`. It is reaped in the background. [`finish`](Self::finish) waits for it
/// instead, and [`kill_on_drop`](crate::Command::kill_on_drop) kills it.
#[derive(Debug)]
pub struct Lines {
    steps: Steps,
    decoding: Decoding,
    splitters: [Splitter; 2],
    /// The lines that are being handed out, and whose they are.
    batch: Batch,
    source: Source,
    /// The buffer of the lines that were handed out last is back with the child.
    is_reading: bool,
}

impl Lines {
    pub(crate) fn new(steps: Steps, decoding: Decoding, max_line: Option<usize>) -> Lines {
        Lines {
            steps,
            decoding,
            splitters: [Splitter::new(max_line), Splitter::new(max_line)],
            batch: Batch::default(),
            source: Source::Stdout,
            is_reading: false,
        }
    }

    /// The process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.steps.pid()
    }

    /// Takes our end of the child's stdin, where the command set that to
    /// [`Stdio::piped`](crate::Stdio::piped). `None`: it did not, or it is too late.
    ///
    /// It has to be taken before the first line is waited for: that wait closes what nobody has taken, so that a child which
    /// reads to the end of its input finds one.
    ///
    /// Whoever writes much has to do that on another thread. A child that waits until somebody takes its output does
    /// not read meanwhile, and the write waits for the child: nothing goes on. Input that is known beforehand is safe in
    /// any amount as [`Stdio::bytes`](crate::Stdio::bytes).
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// use std::io::Write;
    /// let mut lines = Command::new("sort").stdin(Stdio::piped()).lines()?;
    /// let mut stdin = lines.take_stdin().unwrap();
    /// let writer = std::thread::spawn(move || stdin.write_all(b"b\na\n"));
    /// let sorted: Result<Vec<_>, _> = lines.by_ref().map(|line| Ok::<_, pipewright::Error>(line?.text)).collect();
    /// assert_eq!(sorted?, ["a", "b"]);
    /// writer.join().unwrap().unwrap();
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.steps.take_stdin()
    }

    /// Puts the next line into one that is there already, and so allocates nothing for it; `false`:
    /// there is none, and the line is as it was.
    ///
    /// # Errors
    /// What would be an item of the iterator. The line is then as it was.
    ///
    /// ```
    /// use pipewright::{Command, Line};
    /// let mut lines = Command::new("seq").arg("1000").lines()?;
    /// let (mut line, mut bytes) = (Line::default(), 0);
    /// while lines.next_into(&mut line)? {
    ///     bytes += line.text.len();
    /// }
    /// assert_eq!(bytes, 2893);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn next_into(&mut self, line: &mut Line) -> Result<bool, Error> {
        loop {
            if let Some(text) = self.batch.next_ordinary() {
                line.text.clear();
                line.text.push_str(text);
                (line.source, line.truncated) = (self.source, false);
                return Ok(true);
            }
            if let Some(found) = self.batch.next() {
                let decoded = found.decode_into(self.source, self.decoding, &mut line.text);
                line.truncated = found.truncated;
                line.source = self.source;
                return decoded.map(|()| true).map_err(|bad| self.not_utf8(bad));
            }
            if !self.next_batch()? {
                return Ok(false);
            }
        }
    }

    /// Waits for the next line, but not longer than that: for whoever has something else to do now and
    /// then. Zero takes what has come. What the command's time or its cancel token has made necessary is
    /// done by each call.
    ///
    /// ```
    /// use pipewright::{Command, Next};
    /// use std::time::Duration;
    /// let mut lines = Command::new("sleep").arg("60").kill_on_drop().lines()?;
    /// assert!(matches!(lines.next_within(Duration::from_millis(10)), Next::Pending));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn next_within(&mut self, limit: Duration) -> Next<Result<Line, Error>> {
        // A limit so long that the clock cannot hold its end is none.
        let until = Instant::now().checked_add(limit);
        match self.poll_next_by(until, |steps| Poll::Ready(steps.step_until(until))) {
            Poll::Ready(next) => next,
            // Cannot happen: such a step is never pending.
            Poll::Pending => Next::Pending,
        }
    }

    /// Returns the next line, by steps that block or by steps that are polled.
    fn poll_next_by(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Steps) -> Poll<Result<bool, Error>>,
    ) -> Poll<Next<Result<Line, Error>>> {
        let mut is_late = false;
        loop {
            if let Some(line) = self.take_line() {
                return Poll::Ready(Next::Item(line));
            }
            if self.take_batch() {
                continue;
            }
            if is_late {
                return Poll::Ready(Next::Pending);
            }
            match ready!(step(&mut self.steps)) {
                Ok(true) => is_late = until.is_some_and(|until| Instant::now() >= until),
                Ok(false) => return Poll::Ready(Next::Done),
                Err(error) => return Poll::Ready(Next::Item(Err(error))),
            }
        }
    }

    /// Reads the rest without keeping it, waits for the child, and tells how it ended.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    pub fn finish(self) -> Result<Ending, Error> {
        self.steps.finish()
    }

    /// The next of the lines that have come.
    #[inline]
    fn take_line(&mut self) -> Option<Result<Line, Error>> {
        if let Some(text) = self.batch.next_ordinary() {
            let (source, text) = (self.source, text.to_owned());
            return Some(Ok(Line { source, text, truncated: false }));
        }
        let found = self.batch.next()?;
        let (source, truncated) = (self.source, found.truncated);
        Some(match found.decode(source, self.decoding) {
            Ok(text) => Ok(Line { source, text, truncated }),
            Err(bad) => Err(self.not_utf8(bad)),
        })
    }

    /// Steps until there are lines to hand out. `false`: none come any more.
    #[cold]
    fn next_batch(&mut self) -> Result<bool, Error> {
        loop {
            if self.take_batch() {
                return Ok(true);
            }
            if !self.steps.step()? {
                return Ok(false);
            }
        }
    }

    /// Whether there are lines to hand out after what has come up to now. All those before have
    /// been.
    fn take_batch(&mut self) -> bool {
        if !mem::replace(&mut self.is_reading, true) {
            let done = mem::take(&mut self.batch);
            let buffer = self.splitters[self.source as usize].reclaim(done);
            self.steps.give_back(self.source, buffer);
        }
        for source in [Source::Stdout, Source::Stderr] {
            if let Some(chunk) = self.steps.take(source) {
                if self.split(source, chunk) {
                    self.is_reading = false;
                    return true;
                }
            }
        }
        false
    }

    /// Whether the chunk has lines.
    fn split(&mut self, source: Source, chunk: Chunk) -> bool {
        let Chunk { bytes, at_end } = chunk;
        let splitter = &mut self.splitters[source as usize];
        match splitter.split(bytes, at_end, self.decoding.is_utf8()) {
            Ok(batch) => {
                (self.batch, self.source) = (batch, source);
                true
            }
            Err(buffer) => {
                self.steps.give_back(source, buffer);
                false
            }
        }
    }

    fn not_utf8(&self, bad: NotUtf8) -> Error {
        let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
        Error::new(self.steps.program(), Operation::Child("decode the output of"), kind, None)
    }
}

impl Iterator for Lines {
    type Item = Result<Line, Error>;

    fn next(&mut self) -> Option<Result<Line, Error>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(line);
            }
            match self.next_batch() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::iter::FusedIterator for Lines {}
