//! Reads everything that a spawned child writes.

use super::Child;
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::output::{Capture, Output};
use crate::run::{ActiveRun, Collect, Options};
use crate::text::into_text;

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
    pub fn read_all_bytes(self) -> Result<Output, Error> {
        run_async_for_test!(self.read_all_bytes_async());
        self.into_run(Collect::All).finish()
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
        run_async_for_test!(self.read_all_text_async());
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
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
        let Options { decoding, max_line_bytes, .. } = *self.run.options();
        decoding.check_splits_at_line_feeds(self.run.program())?;
        Ok(Lines::new(self.into_run(Collect::Chunks).into_steps(), decoding, max_line_bytes))
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
        Events::new(self.into_run(Collect::Chunks).into_steps())
    }

    /// Returns the run that reads the streams.
    pub(super) fn into_run(mut self, collect: Collect) -> ActiveRun {
        let outputs = [self.stdout.take(), self.stderr.take()];
        self.run.into_run((self.stdin.take(), outputs), collect)
    }
}
