//! The verbs: each ends the chain and runs the command.

use std::ffi::{OsStr, OsString};

use pipewright_os::base::handle::Handle;
use pipewright_os::process::status::ExitStatus;

use super::{Command, Limit, Past, Rules, Scope, Started, StdioDefaults, Usual};
use crate::child::{Child, Process, Processes, Reading};
use crate::drive::{self, Decide, Run, Sink, Stepwise, open_tee};
use crate::error::{Doing, Error, ErrorKind};
use crate::events::Events;
use crate::lines::Lines;
use crate::outcome::Source;
use crate::output::{Capture, Output, TAIL_BYTES, check_tee, judge};
use crate::text::Decoding;

pub(crate) const OURS: StdioDefaults =
    StdioDefaults { stdin: Usual::Inherit, stdout: Usual::Inherit, stderr: Usual::Inherit };
pub(crate) const CAPTURED: StdioDefaults =
    StdioDefaults { stdin: Usual::Null, stdout: Usual::Piped, stderr: Usual::Piped };
pub(crate) const REMEMBERED: StdioDefaults =
    StdioDefaults { stdin: Usual::Inherit, stdout: Usual::Inherit, stderr: Usual::Tee(open_tee) };

/// What is kept of the streams that pass through us.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Both,
    /// Nothing but the end of stderr, for an error.
    Tail,
    Nothing,
}

impl Keep {
    pub(crate) fn sink(self, source: Source, limit: Option<Limit>) -> Sink {
        // One that stops the child stops it whatever is kept.
        let fail = limit.filter(|limit| limit.past == Past::Fail);
        match self {
            Keep::Both => Sink::new(limit),
            Keep::Tail if source == Source::Stderr => {
                Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES))))
            }
            Keep::Tail | Keep::Nothing => Sink::discarding(fail),
        }
    }
}

/// A capture that has been started, apart from its command or pipeline.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) processes: Processes,
    pub(crate) run: Run,
    pub(crate) program: OsString,
    pub(crate) rules: Rules,
    pub(crate) decoding: Decoding,
    /// Of a pipeline: makes the end of the whole.
    pub(crate) decide: Option<Decide>,
}

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
        by_its_twin!(self.status_async());
        let started = self.launch(OURS)?;
        let ends = &started.ends;
        let nothing_to_do = ends.stdout.is_none() && ends.stderr.is_none() && ends.feed.is_none();
        if nothing_to_do
            && !self.rules.can_stop()
            && self.hold.is_none()
            && self.lifetime.front.is_none()
        {
            // Closed before the wait: a child that reads its stdin to the end must find one.
            let Started { mut process, ends, .. } = started;
            drop(ends);
            return process
                .wait_alone()
                .map(|ended| ended.status)
                .map_err(|error| Error::talk(&self.program, "wait for", error));
        }
        let output = self.conduct(started, Keep::Nothing)?;
        check_tee(&self.program, &output).map(|()| output.status)
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
        by_its_twin!(self.output_async());
        let started = self.launch(CAPTURED)?;
        self.conduct(started, Keep::Both)
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
        by_its_twin!(self.capture_async());
        let output = self.output()?;
        into_text(&self.program, self.decoding, output)
    }

    /// Runs the command; anything but success is an error that tells why.
    ///
    /// The child uses our stdin and stdout where nothing else is set. Its stderr passes through us
    /// to ours, so that the error can carry its end: set `stderr(Stdio::inherit())` for a child
    /// that should find a terminal there.
    ///
    /// # Errors
    /// As [`status`](Self::status); and [`ErrorKind::Failed`] where the child did not exit with
    /// code 0, or was stopped.
    ///
    /// ```
    /// use pipewright::Command;
    /// let error = Command::new("sh").args(["-c", "echo no disk >&2; exit 3"]).run().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: exit status: 3: no disk"#);
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        by_its_twin!(self.run_async());
        let started = self.launch(REMEMBERED)?;
        let output = self.conduct(started, Keep::Tail)?;
        judge(&self.program, &output)
    }

    /// Runs the command and gives its stdout as text without the line ends at its end; anything but
    /// success is an error that tells why.
    ///
    /// Both streams are captured and stdin is empty where nothing else is set.
    ///
    /// # Errors
    /// As [`capture`](Self::capture); and [`ErrorKind::Failed`] where the child did not exit with
    /// code 0, or was stopped.
    ///
    /// ```
    /// assert_eq!(pipewright::Command::new("echo").arg("hi").read()?, "hi");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read(&mut self) -> Result<String, Error> {
        by_its_twin!(self.read_async());
        let output = self.output()?;
        self.trimmed(output)
    }

    /// What [`read`](Self::read) makes of an output.
    pub(crate) fn trimmed(&self, output: Output) -> Result<String, Error> {
        judge(&self.program, &output)?;
        let mut text = into_text(&self.program, self.decoding, output)?.stdout;
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
        self.decoding.check_splits_at_line_feeds(&self.program)?;
        Ok(Lines::new(self.step_by_step()?, self.decoding, self.max_line_bytes))
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
        self.step_by_step().map(Events::new)
    }

    /// Starts a run whose streams are handed out.
    pub(crate) fn step_by_step(&self) -> Result<Stepwise, Error> {
        self.rules.prepare_to_keep(&self.program)?;
        let mut started = self.launch(CAPTURED)?;
        let stdin = started.ends.stdin.take();
        let (process, run) = self.begin(started, |_| Sink::handing_out(self.limit));
        let steps = Stepwise::new(process, self.program.clone(), self.rules.clone(), run);
        Ok(steps.with_stdin(stdin))
    }

    /// Starts a run that keeps what it is told to.
    #[cfg(feature = "tokio")]
    pub(crate) fn steps(&self, defaults: StdioDefaults, keep: Keep) -> Result<Stepwise, Error> {
        let sink = |source| keep.sink(source, self.limit);
        let (process, run) = self.begin(self.launch(defaults)?, sink);
        Ok(Stepwise::new(process, self.program.clone(), self.rules.clone(), run))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn decoding(&self) -> Decoding {
        self.decoding
    }

    fn begin(&self, started: Started, sink: impl Fn(Source) -> Sink) -> (Process, Run) {
        let (process, run) = started.into_run(&self.rules, sink);
        (process, run.of(&self.program))
    }

    /// Starts what [`capture`](Self::capture) sees through to its end.
    pub(crate) fn begin_capture(&mut self) -> Result<Begun, Error> {
        let sink = |source| Keep::Both.sink(source, self.limit);
        let (process, run) = self.begin(self.launch(CAPTURED)?, sink);
        Ok(Begun {
            processes: Processes::of(process),
            run,
            program: self.program.clone(),
            rules: self.rules.clone(),
            decoding: self.decoding,
            decide: None,
        })
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
        self.rules.prepare_to_keep(&self.program)?;
        let started = self.launch(OURS)?;
        let reading = Reading {
            limit: self.limit,
            max_line_bytes: self.max_line_bytes,
            decoding: self.decoding,
        };
        Ok(Child::new(started, &self.program, &self.rules, reading))
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

    /// Sees a started child through to its end.
    fn conduct(&self, started: Started, keep: Keep) -> Result<Output, Error> {
        let (process, run) = self.begin(started, |source| keep.sink(source, self.limit));
        drive::see_through(run, process.alone(), &self.rules)
            .map_err(|(doing, source)| Error::talk(&self.program, doing, source))
    }
}

/// A captured output as text.
pub(crate) fn into_text(
    program: &OsStr,
    decoding: Decoding,
    output: Output,
) -> Result<Capture, Error> {
    let written = [output.stdout_bytes, output.stderr_bytes];
    let decode = |source, bytes: Vec<u8>| {
        let is_cut = written[source as usize].is_some_and(|written| written > bytes.len() as u64);
        if is_cut { decoding.decode_cut(source, bytes) } else { decoding.decode(source, bytes) }
    };
    output.try_map(decode).map_err(|bad| {
        let kind = ErrorKind::InvalidUtf8 { source: bad.source, offset: bad.offset };
        Error::new(program, Doing::Talk("decode the output of"), kind, None)
    })
}
