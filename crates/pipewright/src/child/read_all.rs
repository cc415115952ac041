//! Reading everything that a spawned child writes.

use super::Child;
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::output::{Capture, Output};
use crate::run::{Collect, HeldTerminal, Run, RunSettings};
use crate::text::into_text;

/// Verbs that read both streams while feeding the child's input, so that nothing deadlocks, and wait for the child.
///
/// They first close a piped stdin, unless you have taken it. In the result, a stream that is not piped, or that you
/// have taken, is empty, and its number of bytes ([`stdout_bytes`](crate::Captured::stdout_bytes)) is `None`. The
/// command's timeouts, limits and cancel token apply; the timeout counts from the start.
impl Child {
    /// Reads both streams to the end, waits for the child, and returns its output as bytes.
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
    pub fn read_all_bytes(self) -> Result<Output, Error> {
        run_async_for_test!(self.read_all_bytes_async());
        self.into_run(Collect::All).finish()
    }

    /// Same as [`read_all_bytes`](Self::read_all_bytes), under std's name.
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes).
    pub fn wait_with_output(self) -> Result<Output, Error> {
        self.read_all_bytes()
    }

    /// Reads both streams to the end, waits for the child, and returns its output as text, decoded as by
    /// [`Command::capture`](crate::Command::capture).
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes), and output that is not UTF-8 with `strict_utf8`.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.read_all_text()?.stdout, "hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_text(self) -> Result<Capture, Error> {
        run_async_for_test!(self.read_all_text_async());
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
        into_text(&program, decoding, self.read_all_bytes()?)
    }

    /// Returns an iterator over the lines of both streams as they arrive, like
    /// [`Command::lines`](crate::Command::lines). [`Lines::finish`] waits for the child.
    ///
    /// # Errors
    /// The command's encoding is not ASCII-compatible, so line ends cannot be found. The child is then dropped.
    /// Later errors are items.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("seq").arg("3").stdout(Stdio::piped()).spawn()?;
    /// let lines: Result<Vec<_>, _> = child.read_all_lines()?.collect();
    /// assert_eq!(lines?.len(), 3);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_lines(self) -> Result<Lines, Error> {
        let RunSettings { decoding, max_line_bytes, .. } = *self.run.options();
        decoding.check_splits_at_line_feeds(self.run.program())?;
        Ok(Lines::new(self.into_run(Collect::Chunks).enforced(), decoding, max_line_bytes))
    }

    /// Returns an iterator over the child's events from now on, like [`Command::events`](crate::Command::events):
    /// the start, output of either piped stream, and the end.
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
        Events::new(self.into_run(Collect::Chunks).enforced())
    }

    /// Returns the run that reads the streams.
    pub(super) fn into_run(mut self, collect: Collect) -> Run {
        let outputs = [self.stdout.take(), self.stderr.take()];
        let terminal = HeldTerminal { pty: self.pty.take(), child_end: self.take_child_terminal() };
        self.run.into_run((self.stdin.take(), outputs), terminal, collect)
    }
}
