//! Reads everything that a spawned child writes.

use std::mem;
use std::sync::Arc;

use pipewright_os::base::pipe::PipeReader;

use super::Child;
use crate::command::{OutputEnd, into_text};
use crate::drive::{Feed, Sink, Stepwise, TeeTo};
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::outcome::Source;
use crate::output::{Capture, Output};

/// Our ends of both streams, and what is kept of them.
type Streams = [Option<(PipeReader, Sink)>; 2];

/// Reads both streams while the child's input is fed, so that nothing deadlocks, and waits for it.
///
/// Its piped stdin is closed first. A stream that is not piped, or was taken out of the child, is
/// empty, and its length is `None`. The command's timeouts, limits and its cancel token hold; its
/// timeout counts from the start.
impl Child {
    /// Reads both streams to their ends, waits for the child, and gives what it wrote as bytes.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("sh")
    ///     .args(["-c", "echo out; echo err >&2"])
    ///     .stdout(Stdio::piped())
    ///     .stderr(Stdio::null())
    ///     .spawn()?;
    /// let output = child.read_all_bytes()?;
    /// assert_eq!((output.stdout.as_slice(), output.stderr_bytes), (&b"out\n"[..], None));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_bytes(mut self) -> Result<Output, Error> {
        by_its_twin!(self.read_all_bytes_async());
        let (feed, streams) = self.take_streams();
        self.drive(feed, streams)
    }

    /// What is fed and what is kept when everything is read.
    pub(super) fn take_streams(&mut self) -> (Option<Feed>, Streams) {
        // From here on this keeps the time.
        self.keeping = None;
        drop(self.stdin.take());
        let feed = self.input.take_feed();
        let ends = [self.stdout.take(), self.stderr.take()];
        (feed, streams(ends, mem::take(&mut self.tees), || Sink::new(self.reading.limit)))
    }

    /// The same under the name that std has for it.
    ///
    /// # Errors
    /// As [`read_all_bytes`](Self::read_all_bytes).
    pub fn wait_with_output(self) -> Result<Output, Error> {
        self.read_all_bytes()
    }

    /// Reads both streams to their ends, waits for the child, and gives what it wrote as text,
    /// decoded as [`Command::capture`](crate::Command::capture) does.
    ///
    /// # Errors
    /// As [`read_all_bytes`](Self::read_all_bytes); and text that is not UTF-8 where strict text was
    /// asked for.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.read_all_text()?.stdout, "hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_text(self) -> Result<Capture, Error> {
        by_its_twin!(self.read_all_text_async());
        let (program, decoding) = (self.program.clone(), self.reading.decoding);
        into_text(&program, decoding, self.read_all_bytes()?)
    }

    /// Gives the lines of both streams as they arrive, as [`Command::lines`](crate::Command::lines)
    /// does. [`Lines::finish`] waits for the child.
    ///
    /// # Errors
    /// The command's encoding does not contain ASCII, so that lines cannot be found. The child is
    /// then dropped. What goes wrong later is an item.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("seq").arg("3").stdout(Stdio::piped()).spawn()?;
    /// let lines: Result<Vec<_>, _> = child.read_all_lines()?.collect();
    /// assert_eq!(lines?.len(), 3);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_lines(self) -> Result<Lines, Error> {
        let (decoding, max_line_bytes) = (self.reading.decoding, self.reading.max_line_bytes);
        decoding.check_splits_at_line_feeds(&self.program)?;
        Ok(Lines::new(self.into_steps(), decoding, max_line_bytes))
    }

    /// Gives what happens to the child from now on, as [`Command::events`](crate::Command::events) does: that it
    /// was started, what it writes to either piped stream, and how it ended.
    ///
    /// ```
    /// use pipewright::{Command, Event, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// let mut written = Vec::new();
    /// for event in child.read_all_events() {
    ///     match event? {
    ///         Event::Stdout(bytes) => written.extend(bytes),
    ///         Event::Exited(ending) => assert!(ending.success()),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(written, b"hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use = "the child waits when its pipes are full"]
    pub fn read_all_events(self) -> Events {
        Events::new(self.into_steps())
    }

    /// What hands out its streams.
    fn into_steps(mut self) -> Stepwise {
        // From here on whoever is handed the streams keeps the time, or has it kept.
        self.keeping = None;
        let (feed, streams) = {
            let ends = [self.stdout.take(), self.stderr.take()];
            let sink = || Sink::handing_out(self.reading.limit);
            (self.input.take_feed(), streams(ends, mem::take(&mut self.tees), sink))
        };
        drop(self.stdin.take());
        let run = self.run(feed, streams);
        let Child { process, program, rules, .. } = self;
        // Nobody else has it any more.
        let process = Arc::into_inner(process).unwrap_or_default();
        Stepwise::new(process, program, rules, run)
    }
}

/// The streams as a run takes them. Those that were to be passed on to ours are.
fn streams(
    ends: [Option<PipeReader>; 2],
    tees: [Option<TeeTo>; 2],
    sink: impl Fn() -> Sink,
) -> Streams {
    let [out, err] = ends;
    let [out_tee, err_tee] = tees;
    let stream = |pipe: Option<PipeReader>, tee, source| {
        pipe.map(|pipe| OutputEnd { pipe, tee }.into_stream(source, sink()))
    };
    [stream(out, out_tee, Source::Stdout), stream(err, err_tee, Source::Stderr)]
}
