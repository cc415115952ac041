//! Output of a child, line by line.

mod splitter;

use std::mem;
use std::task::Poll;
use std::time::{Duration, Instant};

use splitter::{Batch, Splitter};

use crate::ChildStdin;
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::outcome::Source;
use crate::output::{Decoding, Ending, NotUtf8};
use crate::run::{Chunk, Next, Run, RunDescriptor, poll_next_by};
#[cfg(feature = "tokio")]
use crate::running_output::running_stream;
use crate::running_output::running_verbs;

/// A line that a child wrote, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The stream that the line came from.
    pub source: Source,
    /// The text of the line.
    pub text: String,
    /// True if the line was longer than [`Command::max_line`](crate::Command::max_line) and this is its start. Says
    /// nothing about a cut by a [`Limit`](crate::Limit): see [`Lines`].
    pub truncated: bool,
}

impl Default for Line {
    /// Returns an empty line of stdout, for [`Lines::next_into`] to fill.
    fn default() -> Line {
        Line { source: Source::Stdout, text: String::new(), truncated: false }
    }
}

/// An iterator over the lines of a running child, from both streams in the order of arrival.
///
/// Made by [`Command::lines`](crate::Command::lines) and [`Child::read_all_lines`](crate::Child::read_all_lines).
/// At most one buffer of each stream is read ahead: a child that writes faster than its lines are taken blocks. A
/// line is returned as soon as its end has arrived, and text after the last line end when the stream ends. The
/// command's timeouts, limits and cancel token apply while you wait for a line. Between two calls nothing enforces
/// them; a timeout that has expired meanwhile stops the child at the next call. If your code takes long between two
/// lines, set [`enforce_in_background`](crate::Command::enforce_in_background), or call
/// [`next_within`](Self::next_within) meanwhile. After a stop the remaining lines are returned, then `None`;
/// [`finish`](Self::finish) returns the [`outcome`](crate::Captured::outcome).
///
/// A line at an edge of the output may be a part of one: the last one of a child that was stopped while it wrote,
/// and of each stream the first one after [`Limit::keep_tail`](crate::Limit::keep_tail) or the last one after another
/// limit, if [`truncated`](crate::Captured::truncated) is set.
///
/// # Drop
/// Closes the streams. The child is not killed, but gets SIGPIPE at its next write, as with `| head`. It is reaped
/// in the background. To wait for the child, call [`finish`](Self::finish); to kill it on drop, set
/// [`kill_on_drop`](crate::Command::kill_on_drop).
#[derive(Debug)]
pub struct Lines {
    /// Declared before the run, so dropped first: it waits for the run's handles.
    descriptor: RunDescriptor,
    run: Run,
    decoding: Decoding,
    splitters: [Splitter; 2],
    /// The lines that are being handed out. `source` is their stream.
    batch: Batch,
    source: Source,
    /// True if the stream has its buffer back and is being read.
    is_reading: bool,
}

running_verbs!(Lines);

impl Lines {
    pub(crate) fn new(run: Run, decoding: Decoding, max_line: Option<usize>) -> Lines {
        Lines {
            descriptor: RunDescriptor::default(),
            run,
            decoding,
            splitters: [Splitter::new(max_line), Splitter::new(max_line)],
            batch: Batch::default(),
            source: Source::Stdout,
            is_reading: false,
        }
    }

    /// Takes the parent's end of the child's stdin, if the command set stdin to
    /// [`Stdio::piped`](crate::Stdio::piped). Returns `None` otherwise, or if it is too late.
    ///
    /// Take it before the first wait for a line. That wait closes a stdin that was not taken, so that a child that
    /// reads to the end of its input ends.
    ///
    /// To write a lot, use another thread. A child that blocks because its output is not taken does not read its
    /// input either, so a write on this thread would block forever. No timeout ends such a write, unless
    /// [`enforce_in_background`](crate::Command::enforce_in_background) is set: then it fails with `BrokenPipe` once
    /// the child is stopped. For input known in advance, [`Stdio::bytes`](crate::Stdio::bytes) is safe at any length.
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
    ///
    /// For a dialogue, write a line, then wait for the answer. This works with children that flush each answer; many
    /// programs collect larger blocks when they write to a pipe. A prompt without a line end is not a line: read it
    /// with [`events`](crate::Command::events).
    ///
    /// ```
    /// use pipewright::{Command, Next, Stdio};
    /// use std::{io::Write, time::Duration};
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "while read word; do echo got $word; done"]).stdin(Stdio::piped());
    /// // The limit for the whole dialogue.
    /// let mut lines = command.timeout(Duration::from_secs(60)).enforce_in_background().lines()?;
    /// let mut stdin = lines.take_stdin().unwrap();
    /// for word in ["one", "two"] {
    ///     writeln!(stdin, "{word}").unwrap();
    ///     // The limit for one answer.
    ///     match lines.next_within(Duration::from_secs(10)) {
    ///         Next::Item(answer) => assert_eq!(answer?.text, format!("got {word}")),
    ///         Next::Pending => panic!("no answer in time"),
    ///         Next::Done => panic!("the child has ended"),
    ///     }
    /// }
    /// drop(stdin);
    /// assert!(lines.finish()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "stdin")]
    #[must_use = "dropping it ends the child's input"]
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.run.take_stdin()
    }

    /// Puts the next line into an existing one, which avoids an allocation. Returns `false` if there is none;
    /// `line` is then unchanged.
    ///
    /// # Errors
    /// The errors that the iterator would return as items. `line` is then unchanged.
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
            if let Some(text) = self.batch.next_plain() {
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

    /// Waits for the next line, for at most `limit`, for callers that also have other work. Zero returns only lines
    /// that have already arrived. Each call enforces the command's timeouts and its cancel token.
    ///
    /// ```
    /// use pipewright::{Command, Next};
    /// use std::time::Duration;
    /// let mut lines = Command::new("sleep").arg("60").kill_on_drop().lines()?;
    /// assert!(matches!(lines.next_within(Duration::from_millis(10)), Next::Pending));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn next_within(&mut self, limit: Duration) -> Next<Result<Line, Error>> {
        // A limit too long for the clock means no limit.
        let until = Instant::now().checked_add(limit);
        match self.poll_next_by(until, |run| Poll::Ready(run.step(until))) {
            Poll::Ready(next) => next,
            // Cannot happen: this step is never pending.
            Poll::Pending => Next::Pending,
        }
    }

    /// Returns the next line. The step either blocks or is polled.
    fn poll_next_by(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Run) -> Poll<Result<bool, Error>>,
    ) -> Poll<Next<Result<Line, Error>>> {
        let take = |lines: &mut Lines| {
            loop {
                let line = lines.take_line();
                if line.is_some() || !lines.take_batch() {
                    return line;
                }
            }
        };
        poll_next_by(self, until, take, |lines| step(&mut lines.run))
    }

    /// Reads and discards the rest, waits for the child, and returns its [`Ending`]. A stdin that you have taken stays
    /// open: drop it first if the child reads to the end of its input.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    pub fn finish(self) -> Result<Ending, Error> {
        self.run.finish_ending()
    }

    /// Returns the next of the lines that have arrived.
    #[inline]
    fn take_line(&mut self) -> Option<Result<Line, Error>> {
        if let Some(text) = self.batch.next_plain() {
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

    /// Runs steps until there are lines to hand out. Returns `false` at the end of the output.
    #[cold]
    fn next_batch(&mut self) -> Result<bool, Error> {
        loop {
            if self.take_batch() {
                return Ok(true);
            }
            if !self.run.step(None)? {
                return Ok(false);
            }
        }
    }

    /// Takes the next batch of lines that have arrived; returns true if there is one. All earlier lines must have been
    /// handed out.
    fn take_batch(&mut self) -> bool {
        if !mem::replace(&mut self.is_reading, true) {
            let done = mem::take(&mut self.batch);
            let buffer = self.splitters[self.source as usize].reclaim(done);
            self.run.give_back(self.source, buffer);
        }
        for source in [Source::Stdout, Source::Stderr] {
            if let Some(chunk) = self.run.take(source) {
                if self.split(source, chunk) {
                    self.is_reading = false;
                    return true;
                }
            }
        }
        false
    }

    /// Returns true if the chunk has lines.
    fn split(&mut self, source: Source, chunk: Chunk) -> bool {
        let Chunk { mut bytes, at_end, cut_by } = chunk;
        if let Some(limit) = cut_by {
            self.decoding.drop_cut(&mut bytes, limit.keeps_tail());
        }
        let splitter = &mut self.splitters[source as usize];
        match splitter.split(bytes, at_end, self.decoding.is_utf8()) {
            Ok(batch) => {
                (self.batch, self.source) = (batch, source);
                true
            }
            Err(buffer) => {
                self.run.give_back(source, buffer);
                false
            }
        }
    }

    fn not_utf8(&self, bad: NotUtf8) -> Error {
        let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
        Error::new(self.run.program(), FailedOperation::Child("decode the output of"), kind, None)
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

#[cfg(feature = "tokio")]
running_stream! {
    /// The lines of a running child for a task, from
    /// [`Command::lines_async`](crate::Command::lines_async). See [`Lines`].
    ///
    /// Implements [`Stream`](futures_core::Stream); or call [`next`](Self::next) in a loop.
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
    AsyncLines, Lines, Line, "line"
}
