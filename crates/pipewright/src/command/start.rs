//! The verbs of a command, and its start: from its settings to a running child and a run that is ready to be awaited.

use std::fs::OpenOptions;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright_os::base::error::{OsErrorKind, os_error_kind};
use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe::{self, Mode, PipeOptions, PipeReader, PipeWriter};
use pipewright_os::base::stdio;
use pipewright_os::base::wake::WaitEvent;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::pty::ChildTerminal;
use pipewright_os::process::start::{
    self, Begun, ChildStdio, Inherit, Plan, RequestedStart, SpawnError,
};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::std_process::ParentStream;

use super::TreeSlot;
use super::stdio::{Choice, NamedFile};
use super::{ChildEnv, Command, Scope, Stdio};
use crate::child::Child;
use crate::error::{
    Error, ErrorKind, FailedOperation, could_not_open, could_not_prepare, could_not_start,
};
use crate::events::Events;
use crate::input::Feed;
use crate::lines::Lines;
use crate::output::{Capture, Output, check_success, into_text};
use crate::reaper;
use crate::run::{
    Collect, Launched, OpenTee, OutputEnd, ParentEnds, Rules, Run, RunSettings, Started, TeeTarget,
    earlier, on_demand,
};
use crate::running_output::RunningOutput;
use crate::trace::{self, Trace};

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
        let launched = self.launch(INHERITED)?;
        match self.options.finish {
            Some(finish) => finish(launched, &self.program, &self.options),
            None => launched.wait(&self.program, &self.options),
        }
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

    /// Starts the command and returns its output, which the caller waits for in steps: see [`RunningOutput`]. The
    /// streams are those of [`output`](Self::output).
    ///
    /// # Errors
    /// The command could not be started; none is running.
    pub fn start_output(&mut self) -> Result<RunningOutput, Error> {
        self.options.prepare_enforcement(&self.program)?;
        Ok(RunningOutput::new(self.start_run(CAPTURED, Collect::All)?.enforced()))
    }

    /// Starts a run that hands out its output piece by piece.
    fn start_steps(&self) -> Result<Run, Error> {
        self.options.prepare_enforcement(&self.program)?;
        let mut started = self.start_child(CAPTURED)?;
        let stdin = started.ends.stdin.take();
        Ok(self.run_of(started, Collect::Chunks).enforced().with_stdin(stdin))
    }

    /// Starts the run that [`capture`](Self::capture) finishes.
    pub(crate) fn start_capture(&self) -> Result<Run, Error> {
        self.start_run(CAPTURED, Collect::All)
    }

    /// Returns the time at which the command has to end if it starts at that one.
    pub(crate) fn ends_at(&self, start: Instant) -> Option<Instant> {
        let Rules { timeout, deadline, .. } = &self.options.rules;
        // A timeout beyond the range of the clock never expires.
        let by_timeout = timeout.and_then(|timeout| start.checked_add(timeout));
        earlier(by_timeout, *deadline)
    }

    /// Returns its idle timeout.
    pub(crate) fn longest_silence(&self) -> Option<Duration> {
        self.options.rules.idle_timeout
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

/// The default for a stream that the command does not set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StdioDefault {
    Inherit,
    Null,
    Piped,
    Tee(OpenTee),
}

/// The default streams of a verb.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StdioDefaults {
    pub(crate) stdin: StdioDefault,
    pub(crate) stdout: StdioDefault,
    pub(crate) stderr: StdioDefault,
    /// True if the caller gets the child, and reads its streams.
    pub(crate) caller_reads: bool,
}

/// The child's end of one of its standard streams.
#[derive(Debug)]
pub(super) enum ChildEnd {
    Inherit,
    /// The terminal of the child.
    Terminal,
    /// The handle that the command has for this stream.
    OfCommand,
    Owned(Handle),
    SameAsStdout,
}

impl ChildEnd {
    fn as_plan<'a>(
        &'a self,
        setting: Option<&'a Stdio>,
        terminal: Option<&'a ChildTerminal>,
    ) -> ChildStdio<'a> {
        match (self, setting) {
            (ChildEnd::Owned(handle), _) => ChildStdio::Handle(handle),
            (ChildEnd::Terminal, _) => {
                terminal.map_or(ChildStdio::Inherit, ChildStdio::of_terminal)
            }
            (ChildEnd::OfCommand, Some(Stdio(Choice::Handle(handle)))) => {
                ChildStdio::Handle(handle)
            }
            _ => ChildStdio::Inherit,
        }
    }
}

const STREAM_NAMES: [&str; 3] = ["stdin", "stdout", "stderr"];

/// Everything that is opened and looked up before the start.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) env: ChildEnv,
    pub(super) stdio: [ChildEnd; 3],
    pub(super) ends: ParentEnds,
}

impl Command {
    /// Starts the child and returns the run, which keeps as much output as `collect` says.
    pub(crate) fn start_run(
        &self,
        defaults: StdioDefaults,
        collect: Collect,
    ) -> Result<Run, Error> {
        let started = self.start_child(defaults)?;
        Ok(self.run_of(started, collect))
    }

    /// Returns the run of a child of this command.
    fn run_of(&self, started: Started, collect: Collect) -> Run {
        Run::of_child(started, &self.program, &self.options, collect)
    }

    pub(crate) fn start_child(&self, defaults: StdioDefaults) -> Result<Started, Error> {
        self.launch(defaults).map(Started::from)
    }

    fn launch(&self, defaults: StdioDefaults) -> Result<Launched, Error> {
        self.try_to_launch(defaults).inspect_err(trace::not_started)
    }

    fn try_to_launch(&self, defaults: StdioDefaults) -> Result<Launched, Error> {
        reaper::sweep();
        self.check_holders()?;
        let defaults = match self.lifetime.detached {
            true => self.detached_defaults(defaults)?,
            false => defaults,
        };
        let at = Instant::now();
        let prepared = self.prepare(defaults)?;
        let foreground = self.lifetime.foreground.and_then(|open| open());
        let mut plan = self.plan(&prepared);
        plan.foreground = foreground.as_ref().and_then(|job| job.terminal());
        let child = spawn(&plan)?;
        Ok(Launched { foreground, ..self.launched(child, prepared.ends, at) })
    }

    /// Refuses what contradicts a terminal of the child's own, or a slot.
    fn check_holders(&self) -> Result<(), Error> {
        if self.pty.is_some() {
            self.check_pty()?;
        }
        if self.slot.is_some() {
            self.check_slot()?;
        }
        Ok(())
    }

    /// Combines a child that runs and our ends of its streams.
    fn launched(&self, child: ChildHandle, ends: ParentEnds, at: Instant) -> Launched {
        let trace = Trace::started(&self.program, &child);
        let (on_drop, holds_tree) = (self.lifetime.kill_on_drop, self.holds_tree());
        Launched { child, ends, at, foreground: None, trace, on_drop, holds_tree }
    }

    /// Replaces this process. Returns the reason if that fails.
    fn exec_program(&self) -> Error {
        if self.limits.is_some() {
            return self.misuse("`limits` needs a call that waits: use `spawn` or `status`");
        }
        let prepared = match self.check_unattended().and_then(|()| self.prepare(INHERITED)) {
            Ok(prepared) => prepared,
            Err(error) => return error,
        };
        let plan = self.plan(&prepared);
        match start::exec(&plan) {
            Ok(never) => match never {},
            Err(failed) => could_not_start(&plan, failed),
        }
    }

    pub(super) fn prepare(&self, defaults: StdioDefaults) -> Result<Prepared, Error> {
        let env = self.env.apply();
        if let Some(setting) = &self.pty {
            return (setting.prepare)(self, setting.size, env, defaults);
        }
        let (stdin, mut ends) = self.open_stdin(defaults.stdin)?;
        let (stdout, out) = self.open_output(1, self.stdout.as_ref(), defaults.stdout)?;
        ends.stdout = out;
        ends.stderr_merged = self.merge_stderr;
        let stderr = if !self.merge_stderr {
            let (stderr, err) = self.open_output(2, self.stderr.as_ref(), defaults.stderr)?;
            ends.stderr = err;
            stderr
        } else if let ChildEnd::Inherit = stdout {
            ChildEnd::Owned(stdio::console_out().map_err(|e| self.cannot_open("stdout", e))?)
        } else {
            ChildEnd::SameAsStdout
        };
        Ok(Prepared { env, stdio: [stdin, stdout, stderr], ends })
    }

    pub(super) fn plan<'a>(&'a self, prepared: &'a Prepared) -> Plan<'a> {
        let [stdin, stdout, stderr] = &prepared.stdio;
        let terminal = prepared.ends.terminal.as_ref().map(|terminal| &terminal.child_end);
        let stdout = stdout.as_plan(self.stdout.as_ref(), terminal);
        let stderr = match stderr {
            ChildEnd::SameAsStdout => stdout,
            stderr => stderr.as_plan(self.stderr.as_ref(), terminal),
        };
        Plan {
            program: &self.program,
            search: prepared.env.search(),
            arg0: self.arg0.as_deref(),
            args: &self.args,
            env: prepared.env.as_plan(),
            current_dir: self.current_dir.as_deref(),
            stdio: [stdin.as_plan(self.stdin.as_ref(), terminal), stdout, stderr],
            inherit: match self.inherit_all {
                true => Inherit::AllAnd(&self.inherit),
                false => Inherit::List(&self.inherit),
            },
            contain: self
                .hold_tree
                .filter(|_| self.slot.is_none() || self.limits.is_some())
                .map(|hold_tree| hold_tree(self.kill_tree_on_parent_exit)),
            limits: self.limits.as_ref().map(|limited| &limited.limits),
            slot: self.slot.as_ref().map(TreeSlot::as_os),
            foreground: None,
            terminal,
            unix: &self.unix,
            windows: self.windows.as_deref(),
        }
    }

    pub(super) fn open_stdin(
        &self,
        default: StdioDefault,
    ) -> Result<(ChildEnd, ParentEnds), Error> {
        let no_ends = ParentEnds::default;
        let child_end = match self.stdin.as_ref().map(|stdin| &stdin.0) {
            None if matches!(default, StdioDefault::Piped) => return self.pipe_stdin(Mode::Sync),
            None if matches!(default, StdioDefault::Null) => self.null()?,
            None | Some(Choice::Inherit) => ChildEnd::Inherit,
            Some(Choice::Null) => self.null()?,
            Some(Choice::Handle(_)) => ChildEnd::OfCommand,
            Some(Choice::Parent(stream)) => self.parent_stream(*stream)?,
            Some(Choice::Open(file)) => self.open_file(0, file, OpenOptions::new().read(true))?,
            Some(Choice::Piped(mode)) => return self.pipe_stdin(*mode),
            Some(Choice::Bytes(bytes)) => {
                let (child_end, copy, writer) = self.feed_pipe()?;
                let feed = Some(Feed::bytes(writer, copy, Arc::clone(bytes)));
                return Ok((child_end, ParentEnds { feed, ..no_ends() }));
            }
            Some(Choice::BytesOf(owner)) => {
                let (child_end, copy, writer) = self.feed_pipe()?;
                let feed = Some(Feed::of_owner(writer, copy, Arc::clone(owner)));
                return Ok((child_end, ParentEnds { feed, ..no_ends() }));
            }
            Some(Choice::Reader(reader)) => {
                let taken = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
                let reader = taken.ok_or_else(|| {
                    self.misuse("its stdin reader was already used by an earlier run")
                })?;
                let (child_end, copy, writer) = self.feed_pipe()?;
                let feed = Some(Feed::reader(writer, copy, reader));
                return Ok((child_end, ParentEnds { feed, ..no_ends() }));
            }
            Some(
                Choice::Create(_)
                | Choice::Append(_)
                | Choice::Tee(_)
                | Choice::TeeTarget(..)
                | Choice::TeeWith(_)
                | Choice::TeeMap(_),
            ) => {
                return Err(self.misuse(
                    "its stdin needs a source to read from, not a file or tee to write to",
                ));
            }
        };
        Ok((child_end, no_ends()))
    }

    /// Makes the pipe for stdin. Both ends are synchronous by default: callers that take the parent's end expect a
    /// write to block.
    fn pipe_stdin(&self, ours: Mode) -> Result<(ChildEnd, ParentEnds), Error> {
        let (reader, writer) = self.make_pipe(PipeOptions { write: ours, ..Default::default() })?;
        let ends = ParentEnds { stdin: Some(writer), ..ParentEnds::default() };
        Ok((ChildEnd::Owned(reader.into()), ends))
    }

    /// Returns the child's end, a second handle to it, and our end.
    fn feed_pipe(&self) -> Result<(ChildEnd, PipeReader, PipeWriter), Error> {
        // Our end must not block. `poll` promises some room, not enough for the whole write; a write that waits for
        // the child to read, while the child waits for us to read, would deadlock.
        let options = PipeOptions { write: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = self.make_pipe(options)?;
        let copy = reader.try_clone().map_err(|error| self.cannot_open("a pipe", error))?;
        Ok((ChildEnd::Owned(reader.into()), copy, writer))
    }

    pub(super) fn open_output(
        &self,
        stream: usize,
        choice: Option<&Stdio>,
        default: StdioDefault,
    ) -> Result<(ChildEnd, Option<OutputEnd>), Error> {
        let captured = |tee| -> Result<_, Error> {
            let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
            let (pipe, writer) = self.make_pipe(options)?;
            Ok((ChildEnd::Owned(writer.into()), Some(OutputEnd { pipe, tee })))
        };
        let mut write = OpenOptions::new();
        let child_end = match choice.map(|choice| &choice.0) {
            None => match default {
                StdioDefault::Inherit => ChildEnd::Inherit,
                StdioDefault::Null => self.null()?,
                StdioDefault::Piped => return captured(None),
                StdioDefault::Tee(open) => return captured(Some(TeeTarget::SameStream(open))),
            },
            Some(Choice::Inherit) => ChildEnd::Inherit,
            Some(Choice::Null) => self.null()?,
            Some(Choice::Piped(_)) => return captured(None),
            Some(Choice::Tee(open)) => return captured(Some(TeeTarget::SameStream(*open))),
            Some(Choice::TeeTarget(find, target)) => {
                return captured(Some(find(self, stream, target)?));
            }
            Some(Choice::TeeWith(open) | Choice::TeeMap(open)) => {
                return captured(Some(TeeTarget::Closure(Arc::clone(open))));
            }
            Some(Choice::Handle(_)) => ChildEnd::OfCommand,
            Some(Choice::Parent(stream)) => self.parent_stream(*stream)?,
            Some(Choice::Create(file)) => {
                self.open_file(stream, file, write.write(true).create(true).truncate(true))?
            }
            Some(Choice::Append(file)) => {
                self.open_file(stream, file, write.append(true).create(true))?
            }
            Some(Choice::Open(_) | Choice::Bytes(_) | Choice::BytesOf(_) | Choice::Reader(_)) => {
                let name = STREAM_NAMES[stream];
                return Err(self.misuse(&format!(
                    "its {name} needs a target to write to, not a source to read from"
                )));
            }
        };
        Ok((child_end, None))
    }

    pub(super) fn open_tee_target(
        &self,
        stream: usize,
        target: &Stdio,
    ) -> Result<TeeTarget, Error> {
        let cannot = |error| self.cannot_open(STREAM_NAMES[stream], error);
        let handle = match self.open_output(stream, Some(target), StdioDefault::Null)? {
            (ChildEnd::Owned(handle), None) => Ok(handle),
            (ChildEnd::OfCommand, None) => match &target.0 {
                Choice::Handle(handle) => handle.try_clone(),
                _ => Err(io::ErrorKind::InvalidInput.into()),
            },
            (ChildEnd::Inherit, None) if stream == 1 => stdio::console_out(),
            (ChildEnd::Inherit, None) => stdio::console_err(),
            _ => return Err(self.misuse("a tee target must be a file, a handle, null or inherit")),
        };
        Ok(TeeTarget::Handle(on_demand::OPEN_TEE_TO, handle.map_err(cannot)?))
    }

    fn open_file(
        &self,
        stream: usize,
        file: &NamedFile,
        options: &OpenOptions,
    ) -> Result<ChildEnd, Error> {
        let opened = (file.open)(&file.path, options, &self.options.rules);
        let opened = opened.map_err(|error| {
            could_not_open(&self.program, &file.path, STREAM_NAMES[stream], error)
        })?;
        Ok(ChildEnd::Owned(opened.into()))
    }

    fn parent_stream(&self, stream: ParentStream) -> Result<ChildEnd, Error> {
        let opened = match stream {
            ParentStream::Stdout => stdio::console_out(),
            ParentStream::Stderr => stdio::console_err(),
        };
        opened
            .map(ChildEnd::Owned)
            .map_err(|error| self.cannot_open("a stream of this process", error))
    }

    fn null(&self) -> Result<ChildEnd, Error> {
        stdio::null()
            .map(ChildEnd::Owned)
            .map_err(|error| self.cannot_open("the null device", error))
    }

    pub(crate) fn make_pipe(
        &self,
        options: PipeOptions,
    ) -> Result<(PipeReader, PipeWriter), Error> {
        pipe::pair(options).map_err(|error| self.cannot_open("a pipe", error))
    }

    pub(super) fn cannot_open(&self, what: &str, error: io::Error) -> Error {
        could_not_prepare(&self.program, format!("cannot open {what}"), error)
    }

    pub(crate) fn misuse(&self, words: &str) -> Error {
        let source = io::Error::new(io::ErrorKind::InvalidInput, words.to_owned());
        Error::new(&self.program, FailedOperation::Start, ErrorKind::InvalidInput, Some(source))
    }
}

/// Starts the child; retries for a while if the program file is being written.
///
/// If another thread starts a child after we open a file for writing and before we close it, that child holds a
/// writable handle until it execs. No order of calls closes that window (golang/go#22315).
fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, Error> {
    retry_if_busy(plan, start::spawn(plan))
}

fn retry_if_busy(
    plan: &Plan<'_>,
    mut started: Result<ChildHandle, SpawnError>,
) -> Result<ChildHandle, Error> {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const RETRIES: u32 = 7;
    let mut tries = 0;
    loop {
        let failed = match started {
            Ok(child) => return Ok(child),
            Err(failed) => failed,
        };
        let busy = os_error_kind(&failed.source) == Some(OsErrorKind::Busy);
        if !busy || tries == RETRIES {
            return Err(could_not_start(plan, failed));
        }
        // 1, 2, 4 ... 64 ms: 127 ms in all.
        pause(FIRST_PAUSE * (1 << tries));
        tries += 1;
        started = start::spawn(plan);
    }
}

/// Waits for nothing but time. `wait::any` would too, and would make a minimal program 8 kB larger.
#[expect(clippy::disallowed_methods, reason = "nothing tells when a writer closes a file")]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// A start that has begun.
pub(crate) enum BegunChild {
    Started(Started),
    /// A slot has been asked for it.
    Starting(StartingChild),
}

/// A start that a slot has been asked for.
///
/// # Drop
/// Waits a moment for the result, and kills the child.
#[derive(Debug)]
pub(crate) struct StartingChild {
    prepared: Prepared,
    at: Instant,
    until: Option<Instant>,
    start: RequestedStart,
}

impl StartingChild {
    /// Returns the event that ends the wait for the result.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        &self.start
    }

    /// Returns the time at which the command has to end.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Kills the child, and what was asked to start it. The result comes once both have ended.
    pub(crate) fn end(&mut self) {
        self.start.end();
    }
}

impl Command {
    /// Begins a start, and does not wait for a slot's answer.
    fn begin_child(&self, defaults: StdioDefaults) -> Result<BegunChild, Error> {
        let is_plain = !self.lifetime.detached && self.lifetime.foreground.is_none();
        if self.slot.is_none() || !is_plain {
            return self.start_child(defaults).map(BegunChild::Started);
        }
        self.try_to_begin(defaults).inspect_err(trace::not_started)
    }

    fn try_to_begin(&self, defaults: StdioDefaults) -> Result<BegunChild, Error> {
        reaper::sweep();
        self.check_holders()?;
        let at = Instant::now();
        let prepared = self.prepare(defaults)?;
        let plan = self.plan(&prepared);
        let begun = match start::begin(&plan) {
            Ok(Begun::Requested(start)) => {
                let until = self.ends_at(at);
                return Ok(BegunChild::Starting(StartingChild { prepared, at, until, start }));
            }
            Ok(Begun::Started(child)) => Ok(child),
            Err(failed) => Err(failed),
        };
        let child = retry_if_busy(&plan, begun)?;
        Ok(BegunChild::Started(self.launched(child, prepared.ends, at).into()))
    }

    /// Waits for the result of a start that this command has begun.
    pub(crate) fn finish_child(&self, starting: StartingChild) -> Result<Started, Error> {
        let StartingChild { prepared, at, start, .. } = starting;
        let plan = self.plan(&prepared);
        let child = retry_if_busy(&plan, start.finish(&plan)).inspect_err(trace::not_started)?;
        Ok(self.launched(child, prepared.ends, at).into())
    }
}

#[cfg(test)]
mod tests {
    use pipewright_os::process::limits::TreeLimits;

    use super::*;
    use crate::{CancelToken, Contain};

    /// Without it, a status would be waited for and nothing else: no timeout, no stream that is read, no tree that is
    /// ended.
    #[test]
    fn each_setter_that_a_run_sees_to_has_its_code_linked() {
        type Setter = fn(&mut Command) -> &mut Command;
        let setters: [(&str, Setter); 16] = [
            ("stdin", |command| command.stdin(Stdio::bytes("in"))),
            ("stdout", |command| command.stdout(Stdio::piped())),
            ("stderr", |command| command.stderr(Stdio::tee())),
            ("pty", |command| command.pty(crate::PtySize::default())),
            ("timeout", |command| command.timeout(Duration::ZERO)),
            ("deadline", |command| command.deadline(Instant::now())),
            ("idle_timeout", |command| command.idle_timeout(Duration::ZERO)),
            ("cancel", |command| command.cancel(&CancelToken::new())),
            ("foreground", Command::foreground),
            ("contain", |command| command.contain(Contain::Tree)),
            ("kill_on_parent_exit", |command| command.kill_on_parent_exit(Scope::Tree)),
            ("limits", |command| command.limits(TreeLimits::default())),
            ("args", |command| command.args(["1"])),
            ("env", |command| command.env("A", "1")),
            ("merge_stderr", Command::merge_stderr),
            ("detached", Command::detached),
        ];
        let needs_a_run = |name: &str| !["args", "env", "merge_stderr", "detached"].contains(&name);
        for (name, set) in setters {
            let mut command = Command::new("true");
            assert!(command.options.finish.is_none());
            assert_eq!(set(&mut command).options.finish.is_some(), needs_a_run(name), "{name}");
        }
    }
}
