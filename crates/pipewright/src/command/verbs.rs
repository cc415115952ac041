//! The verbs: each ends the chain and runs the command.

use pipewright_os::base::handle::Handle;
use pipewright_os::process::status::ExitStatus;

use super::{BegunChild, Command, Scope, StdioDefault, StdioDefaults};
use crate::child::Child;
use crate::error::{Error, ErrorKind};
use crate::events::Events;
use crate::lines::Lines;
use crate::output::{Capture, Output, check_success, check_tee};
use crate::run::{Collect, Run, RunSettings, Started, on_demand};
use crate::running_output::RunningOutput;
use crate::text::into_text;

pub(crate) const INHERITED: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Inherit,
    stdout: StdioDefault::Inherit,
    stderr: StdioDefault::Inherit,
    caller_reads: false,
};
/// The streams of a child that the caller gets.
const SPAWNED: StdioDefaults = StdioDefaults { caller_reads: true, ..INHERITED };
pub(crate) const CAPTURED: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Null,
    stdout: StdioDefault::Piped,
    stderr: StdioDefault::Piped,
    caller_reads: false,
};
pub(crate) const STDERR_TEED: StdioDefaults = StdioDefaults {
    stdin: StdioDefault::Inherit,
    stdout: StdioDefault::Inherit,
    stderr: StdioDefault::Tee(on_demand::OPEN_TEE),
    caller_reads: false,
};

impl Command {
    /// Runs the command and returns its exit status; a non-zero exit is `Ok`, as in std.
    ///
    /// By default the child inherits stdio. Piped streams are drained and discarded. If a timeout or cancel stopped
    /// the run, the status is the one that the stop caused; [`capture`](Self::capture) also returns the outcome.
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
        let started = self.start_child(INHERITED)?;
        let needs_a_run = started.ends.pass_data()
            || started.foreground.is_some()
            || self.options.rules.can_stop()
            || self.holds_tree();
        if !needs_a_run {
            let ended = started.wait().map_err(|e| Error::cannot(&self.program, "wait for", e))?;
            return Ok(ended.status);
        }
        let output = self.run_of(started, Collect::Nothing).finish()?;
        check_tee(&self.program, &output)?;
        Ok(output.status)
    }

    /// Runs the command and returns its output as bytes; a non-zero exit is `Ok`, as in std.
    ///
    /// By default both streams are captured and stdin is empty.
    ///
    /// # Errors
    /// The child could not be started, read from or waited for; it is then no longer running. A timeout is not an
    /// error: see [`Outcome`](crate::Outcome).
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

    /// Runs the command and returns its output as text; a non-zero exit is `Ok`.
    ///
    /// Like [`output`](Self::output), but decoded: bytes that are not UTF-8 become U+FFFD, unless
    /// [`strict_utf8`](Self::strict_utf8) is set.
    ///
    /// # Errors
    /// Those of [`output`](Self::output), and output that is not UTF-8 with `strict_utf8`.
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

    /// Runs the command; anything but success is an error with the reason.
    ///
    /// By default the child inherits stdin and stdout. Its stderr passes through this process, so that the error
    /// can quote its last part. Set `stderr(Stdio::inherit())` if the child should see a terminal there.
    ///
    /// # Errors
    /// Those of [`status`](Self::status), and [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the child was
    /// stopped or did not exit with code 0.
    ///
    /// ```
    /// use pipewright::Command;
    /// let error = Command::new("sh").args(["-c", "echo no disk >&2; exit 3"]).run().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: exit status: 3: no disk"#);
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        run_async_for_test!(self.run_async());
        let output = self.start_run(STDERR_TEED, Collect::StderrTail)?.finish()?;
        check_success(&self.program, &output)
    }

    /// Runs the command and returns its stdout as text, without trailing line ends; anything but success is an
    /// error with the reason.
    ///
    /// By default both streams are captured and stdin is empty.
    ///
    /// # Errors
    /// Those of [`capture`](Self::capture), and [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the child was
    /// stopped or did not exit with code 0.
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

    /// Returns the stdout of a run that succeeded, without trailing line ends.
    pub(crate) fn trimmed(&self, output: Output) -> Result<String, Error> {
        check_success(&self.program, &output)?;
        let mut text = self.decoded(output)?.stdout;
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(text)
    }

    /// Starts the command and returns an iterator over the lines of both streams as they arrive.
    ///
    /// By default both streams are captured and stdin is empty. Lines end with LF or CR LF, which is removed. Bytes
    /// that are not UTF-8 become U+FFFD, unless [`strict_utf8`](Self::strict_utf8) is set. Lines of different
    /// streams come in the order of their arrival; for the exact order, use [`merge_stderr`](Self::merge_stderr).
    /// If stdin is piped, [take](Lines::take_stdin) it before the first line; otherwise the first line closes it.
    ///
    /// # Errors
    /// The child could not be started; none is running. Later errors are items.
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
        let RunSettings { decoding, max_line_bytes, .. } = self.options;
        decoding.check_splits_at_line_feeds(&self.program)?;
        Ok(Lines::new(self.start_steps()?, decoding, max_line_bytes))
    }

    /// Starts the command and returns an iterator over its events as they happen: the start, output of either
    /// stream, and the end.
    ///
    /// By default both streams are captured and stdin is empty. Events of different streams come in the order of
    /// their arrival; for the exact order, use [`merge_stderr`](Self::merge_stderr). If stdin is piped,
    /// [take](Events::take_stdin) it before the first wait; otherwise that wait closes it.
    ///
    /// # Errors
    /// The child could not be started; none is running. Later errors are items.
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

    /// Starts a run that hands out its output piece by piece.
    /// Starts the command and returns its output, which the caller waits for in steps: see [`RunningOutput`]. The streams
    /// are those of [`output`](Self::output).
    ///
    /// # Errors
    /// The command could not be started; none is running.
    pub fn start_output(&mut self) -> Result<RunningOutput, Error> {
        self.options.prepare_enforcement(&self.program)?;
        Ok(RunningOutput::new(self.start_run(CAPTURED, Collect::All)?.enforced()))
    }

    fn start_steps(&self) -> Result<Run, Error> {
        self.options.prepare_enforcement(&self.program)?;
        let mut started = self.start_child(CAPTURED)?;
        let stdin = started.ends.stdin.take();
        Ok(self.run_of(started, Collect::Chunks).enforced().with_stdin(stdin))
    }

    /// Starts the run that [`capture`](Self::capture) finishes.
    pub(crate) fn start_capture(&mut self) -> Result<Run, Error> {
        self.start_run(CAPTURED, Collect::All)
    }

    /// Begins what [`start_capture`](Self::start_capture) does, and does not wait for a slot's answer.
    pub(crate) fn begin_capture(&self) -> Result<BegunChild, Error> {
        self.begin_child(CAPTURED)
    }

    /// Returns the run of a child that such a start has started.
    pub(crate) fn captured(&self, started: Started) -> Run {
        self.run_of(started, Collect::All)
    }

    /// Starts the command and returns the child, in std's shape.
    ///
    /// By default the child inherits stdio. Input that was given to the command
    /// ([`Stdio::bytes`](crate::Stdio::bytes), [`Stdio::reader`](crate::Stdio::reader)) is fed from the start on,
    /// by a background thread if it does not fit into the pipe. The command's timeouts and limits apply while a
    /// verb of the child waits. With [`enforce_in_background`](Self::enforce_in_background), timeouts and the
    /// cancel token apply all the time.
    ///
    /// # Errors
    /// The child could not be started; none is running.
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
        Ok(Child::new(self.start_child(SPAWNED)?, &self.program, &self.options))
    }

    /// Starts a worker as [`spawn`](Self::spawn) does. The worker also inherits `handle`, which is closed here
    /// afterwards, and the variables, which tell it the handle; `None` removes a variable. The worker is killed
    /// when it is dropped and when this process ends, with its tree if the command contains that. The command is left
    /// unchanged.
    #[doc(hidden)]
    pub fn spawn_worker(
        &mut self,
        handle: Handle,
        variables: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<Child, Error> {
        let before = (self.env.clone(), self.lifetime, self.unix.kill_on_parent_exit);
        let kills_tree = self.kill_tree_on_parent_exit;
        for (variable, value) in variables {
            match value {
                Some(value) => self.env(variable, value),
                // This process may have inherited the variable itself.
                None => self.env_remove(variable),
            };
        }
        self.kill_on_drop();
        // If only the worker ended with this process, the rest of its tree would remain, and so would its cgroup.
        let may_end_tree = self.hold_tree.is_some() && !kills_tree;
        if !kills_tree {
            self.kill_on_parent_exit(if may_end_tree { Scope::Tree } else { Scope::Child });
        }
        self.inherit.push((handle, None));
        let mut child = self.spawn();
        if may_end_tree && child.as_ref().is_err_and(|it| *it.kind() == ErrorKind::Unsupported) {
            // Nothing was started: there is no supervisor here.
            self.kill_on_parent_exit(Scope::Child);
            child = self.spawn();
        }
        self.inherit.pop();
        self.kill_tree_on_parent_exit = kills_tree;
        self.update_hold_tree();
        (self.env, self.lifetime, self.unix.kill_on_parent_exit) = before;
        child
    }

    /// Replaces this process with the command. Returns only if that fails, with the error. Unix only.
    ///
    /// On success nothing else of this program runs: no destructor, no flush of buffered output.
    /// [`kill_on_parent_exit`](Self::kill_on_parent_exit) applies to children and has no effect here.
    ///
    /// After a failure, changes that the command's options have made to this process stay: user and groups for all
    /// threads, niceness for the calling thread.
    ///
    /// A stream that would pass through this process, a timeout, a cancel token or [`foreground`](Self::foreground)
    /// is [`InvalidInput`](crate::ErrorKind::InvalidInput), as for [`start_and_forget`](Self::start_and_forget).
    #[must_use = "it only returns if it failed"]
    pub fn exec(&mut self) -> Error {
        self.exec_program()
    }
}
