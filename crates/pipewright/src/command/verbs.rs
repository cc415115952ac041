//! The verbs: each ends the chain and runs the command.

use pipewright_os::base::handle::Handle;
use pipewright_os::process::status::ExitStatus;

use super::{Command, Scope, StdioDefault, StdioDefaults};
use crate::child::Child;
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::output::{Capture, Output, check_success, check_tee};
use crate::run::{ActiveRun, Collect, Options, Steps, on_demand};
use crate::text::into_text;

pub(crate) const OURS: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Inherit,
    stdout: StdioDefault::Inherit,
    stderr: StdioDefault::Inherit,
};
pub(crate) const CAPTURED: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Null,
    stdout: StdioDefault::Piped,
    stderr: StdioDefault::Piped,
};
pub(crate) const REMEMBERED: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Inherit,
    stdout: StdioDefault::Inherit,
    stderr: StdioDefault::Tee(on_demand::OPEN_TEE),
};

impl Command {
    /// Runs the command and tells how it ended; a non-zero exit is `Ok`, as in std.
    ///
    /// The child uses our stdio where nothing else is set. Piped streams are drained and thrown
    /// away. A run that we stopped tells the status that the stop led to; [`capture`](Self::capture)
    /// tells the outcome too.
    ///
    /// # Errors
    /// The child could not be started or waited for.
    ///
    /// ```
    /// let status = pipewright::Command::new("false").status()?;
    /// assert_eq!(status.code(), Some(1));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn status(&mut self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.status_async());
        let started = self.start_child(OURS)?;
        let needs_a_run = started.ends.pass_data()
            || started.foreground.is_some()
            || self.options.rules.can_stop()
            || self.holds_tree();
        if !needs_a_run {
            let ended = started.wait().map_err(|e| Error::cannot(&self.program, "wait for", e))?;
            return Ok(ended.status);
        }
        let run = ActiveRun::of_child(started, &self.program, &self.options, Collect::Nothing);
        let output = run.finish()?;
        check_tee(&self.program, &output)?;
        Ok(output.status)
    }

    /// Runs the command and gives what it wrote as bytes; a non-zero exit is `Ok`, as in std.
    ///
    /// Both streams are captured and stdin is empty where nothing else is set.
    ///
    /// # Errors
    /// The child could not be started, read from or waited for; it is then no longer running. A
    /// timeout is no error: see [`Outcome`](crate::Outcome).
    ///
    /// ```
    /// let output = pipewright::Command::new("echo").arg("hi").output()?;
    /// assert_eq!(output.stdout, b"hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "read_bytes")]
    pub fn output(&mut self) -> Result<Output, Error> {
        run_async_for_test!(self.output_async());
        self.start_run(CAPTURED, Collect::All)?.finish()
    }

    /// Runs the command and gives what it wrote as text; a non-zero exit is `Ok`.
    ///
    /// As [`output`](Self::output), decoded: bytes that are not UTF-8 become U+FFFD, unless
    /// [`strict_utf8`](Self::strict_utf8) is set.
    ///
    /// # Errors
    /// As [`output`](Self::output); and text that is not UTF-8 where strict text was asked for.
    ///
    /// ```
    /// let capture = pipewright::Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).capture()?;
    /// assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("out\n", "err\n"));
    /// assert_eq!(capture.status.code(), Some(3));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn capture(&mut self) -> Result<Capture, Error> {
        run_async_for_test!(self.capture_async());
        let output = self.output()?;
        self.decoded(output)
    }

    /// Runs the command; anything but success is an error that tells why.
    ///
    /// The child uses our stdin and stdout where nothing else is set. Its stderr passes through us
    /// to ours, so that the error can carry its end: set `stderr(Stdio::inherit())` for a child
    /// that should find a terminal there.
    ///
    /// # Errors
    /// As [`status`](Self::status); and [`ErrorKind::Failed`](crate::ErrorKind::Failed) where the child did not exit with
    /// code 0, or was stopped.
    ///
    /// ```
    /// use pipewright::Command;
    /// let error = Command::new("sh").args(["-c", "echo no disk >&2; exit 3"]).run().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: exit status: 3: no disk"#);
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        run_async_for_test!(self.run_async());
        let output = self.start_run(REMEMBERED, Collect::StderrTail)?.finish()?;
        check_success(&self.program, &output)
    }

    /// Runs the command and gives its stdout as text without the line ends at its end; anything but
    /// success is an error that tells why.
    ///
    /// Both streams are captured and stdin is empty where nothing else is set.
    ///
    /// # Errors
    /// As [`capture`](Self::capture); and [`ErrorKind::Failed`](crate::ErrorKind::Failed) where the child did not exit with
    /// code 0, or was stopped.
    ///
    /// ```
    /// assert_eq!(pipewright::Command::new("echo").arg("hi").read()?, "hi");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read(&mut self) -> Result<String, Error> {
        run_async_for_test!(self.read_async());
        let output = self.output()?;
        self.trimmed(output)
    }

    /// Returns the output as text.
    pub(crate) fn decoded(&self, output: Output) -> Result<Capture, Error> {
        into_text(&self.program, self.options.decoding, output)
    }

    /// Returns the stdout of a run that succeeded, without the line ends at its end.
    pub(crate) fn trimmed(&self, output: Output) -> Result<String, Error> {
        check_success(&self.program, &output)?;
        let mut text = self.decoded(output)?.stdout;
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(text)
    }

    /// Starts the command and gives its lines, of both streams, as they arrive.
    ///
    /// Both streams are captured and stdin is empty where nothing else is set. Lines end with LF or
    /// CR LF, which is left out; bytes that are not UTF-8 become U+FFFD, unless
    /// [`strict_utf8`](Self::strict_utf8) is set. The order of two lines of different streams is
    /// that of their arrival; exact order needs [`merge_stderr`](Self::merge_stderr). A piped stdin is
    /// [taken](Lines::take_stdin) before the first line, or closed by it.
    ///
    /// # Errors
    /// The child could not be started; there is then none. What goes wrong later is an item.
    ///
    /// ```
    /// use pipewright::{Command, Source};
    /// let mut lines = Command::new("sh").args(["-c", "echo one; echo two; exit 3"]).lines()?;
    /// let first = lines.next().unwrap()?;
    /// assert_eq!((first.source, first.text.as_str()), (Source::Stdout, "one"));
    /// assert_eq!(lines.finish()?.status.code(), Some(3));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn lines(&mut self) -> Result<Lines, Error> {
        let Options { decoding, max_line_bytes, .. } = self.options;
        decoding.check_splits_at_line_feeds(&self.program)?;
        Ok(Lines::new(self.start_steps()?, decoding, max_line_bytes))
    }

    /// Starts the command and gives what happens to it, as it happens: that it was started, what it
    /// writes to either stream, and how it ended.
    ///
    /// Both streams are captured and stdin is empty where nothing else is set. The order of two
    /// events of different streams is that of their arrival; exact order needs
    /// [`merge_stderr`](Self::merge_stderr). A piped stdin is [taken](Events::take_stdin) before the first
    /// wait, or closed by it.
    ///
    /// # Errors
    /// The child could not be started; there is then none. What goes wrong later is an item.
    ///
    /// ```
    /// use pipewright::{Command, Event};
    /// let mut written = Vec::new();
    /// for event in Command::new("sh").args(["-c", "echo hi; exit 3"]).events()? {
    ///     match event? {
    ///         Event::Stdout(bytes) => written.extend(bytes),
    ///         Event::Exited(ending) => assert_eq!(ending.status.code(), Some(3)),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(written, b"hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn events(&mut self) -> Result<Events, Error> {
        self.start_steps().map(Events::new)
    }

    /// Starts a run whose streams are handed out.
    fn start_steps(&self) -> Result<Steps, Error> {
        self.options.prepare_enforcement(&self.program)?;
        let mut started = self.start_child(CAPTURED)?;
        let stdin = started.ends.stdin.take();
        let run = ActiveRun::of_child(started, &self.program, &self.options, Collect::Chunks);
        Ok(run.into_steps().with_stdin(stdin))
    }

    /// Starts the run that [`capture`](Self::capture) sees through to its end.
    pub(crate) fn start_capture(&mut self) -> Result<ActiveRun, Error> {
        self.start_run(CAPTURED, Collect::All)
    }

    /// Starts the command and gives the child, in std's shape.
    ///
    /// The child uses our stdio where nothing else is set. Input that came with the command
    /// ([`Stdio::bytes`](crate::Stdio::bytes), [`Stdio::reader`](crate::Stdio::reader)) is fed from the start on, by a
    /// background thread where the pipe cannot hold all of it. Timeouts and limits of the command hold for the child's
    /// verbs that wait, and while none of them does only with
    /// [`enforce_in_background`](Self::enforce_in_background).
    ///
    /// # Errors
    /// The child could not be started; there is then none.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output()?.stdout, b"hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "spawn_async")]
    pub fn spawn(&mut self) -> Result<Child, Error> {
        self.options.prepare_enforcement(&self.program)?;
        Ok(Child::new(self.start_child(OURS)?, &self.program, &self.options))
    }

    /// Starts a worker as [`spawn`](Self::spawn) does: it inherits one more handle, which is closed here afterwards, and
    /// these variables, which tell it the handle; `None` removes a variable. The worker is killed when it is dropped and
    /// when this process ends. The command is left unchanged.
    #[doc(hidden)]
    pub fn spawn_worker(
        &mut self,
        handle: Handle,
        variables: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<Child, Error> {
        let before = (self.env.clone(), self.lifetime, self.unix.kill_on_parent_exit);
        for (variable, value) in variables {
            match value {
                Some(value) => self.env(variable, value),
                // One that this process has inherited itself.
                None => self.env_remove(variable),
            };
        }
        self.kill_on_drop();
        if !self.ends_with_us {
            self.kill_on_parent_exit(Scope::Child);
        }
        self.inherit.push((handle, None));
        let child = self.spawn();
        self.inherit.pop();
        (self.env, self.lifetime, self.unix.kill_on_parent_exit) = before;
        child
    }

    /// Replaces this process by the command. Returns only with the reason why that failed; what
    /// the command's options had changed about this process by then stays changed: user and groups for
    /// all threads, the niceness for the calling one. Unix only.
    ///
    /// Nothing of this program runs any more: no destructor, no buffered output is written.
    /// [`kill_on_parent_exit`](Self::kill_on_parent_exit) means a child, and does nothing here.
    ///
    /// As with [`start_and_forget`](Self::start_and_forget), a stream that would pass through us, a
    /// timeout, a cancel token or [`foreground`](Self::foreground) is
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    #[must_use = "it only returns if it failed"]
    pub fn exec(&mut self) -> Error {
        self.become_program()
    }
}
