//! Commands joined by pipes: the type, its setters and its verbs. What a start makes is in `start.rs`.

mod start;

use std::ffi::{OsStr, OsString};
use std::ops::BitOr;
use std::{fmt, io};

use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::ExitStatus;

#[cfg(feature = "tokio")]
use crate::command::async_verbs;
use crate::command::{CAPTURED, Command, INHERITED, STDERR_TEED, StdioDefaults};
use crate::error::Error;
#[cfg(feature = "tokio")]
use crate::error::FailedOperation;
#[cfg(feature = "tokio")]
use crate::events::AsyncEvents;
use crate::events::Events;
#[cfg(feature = "tokio")]
use crate::lines::AsyncLines;
use crate::lines::Lines;
use crate::output::{Output, check_success, check_tee, into_text};
#[cfg(feature = "tokio")]
use crate::run::check_runtime;
use crate::run::{
    Children as _, Collect, Decide, OpenForeground, Run, RunSettings, on_demand, option_setters,
};
use crate::running_output::RunningOutput;
use start::{pipeline_output, with_stages};

pub use start::{PipelineCapture, PipelineChild, PipelineOutput, Pipelined, StageEnd};

/// Commands that run at the same time, each with its stdout connected to the next one's stdin by a kernel pipe.
///
/// The data between two stages does not pass through this process. This process keeps no end of those pipes, so each
/// stage sees the end of its input and gets SIGPIPE, as in a shell.
///
/// Make one with `|`, [`Command::pipe`] or from a list, and run it with the verbs of [`Command`]. Commands that are
/// borrowed in the expression stay borrowed, so chains of setters work as usual. A pipeline that you keep has to
/// own its commands: see [`Command::owned`].
///
/// # Streams
/// The first stage's stdin and the last stage's stdout are set on their commands, with the verb's defaults. A
/// stream between two stages cannot be set (except to [`piped`](crate::Stdio::piped), which it is anyway). The
/// stderr of a stage is set on its command. All stages whose stderr passes through this process share one pipe, so
/// that its output keeps its exact order; either all of them are teed or none. With
/// [`merge_stderr`](Command::merge_stderr), a stage's stderr goes to the next stage too.
///
/// # Status
/// The status of a pipeline is that of the right-most failed stage, or of the last stage if none failed. A stage
/// before the last that ended by SIGPIPE (or exited with 141, a shell's code for that) has not failed: the later
/// stage had read all it needed. [`pipefail(false)`](Self::pipefail) selects sh's rule: the status of the last
/// stage.
///
/// # Settings
/// Settings of a whole run (timeouts, limits, `cancel` and so on) are set on the pipeline and apply to all of it. A
/// stop reaches every stage and its descendants, last stage first, so that no stage mistakes a stopped writer for
/// the end of its input. A command that has such a setting itself is refused as a stage. Settings of one child
/// (environment, directory, user, group, inherited handles) are set on its command.
///
/// ```
/// use pipewright::Command;
/// use std::time::Duration;
///
/// let text = (Command::new("printf").arg(r"b\na\nb\n")
///     | Command::new("sort")
///     | Command::new("uniq").arg("-c"))
/// .timeout(Duration::from_secs(10))
/// .read()?;
/// assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1", "a", "2", "b"]);
/// # Ok::<(), pipewright::Error>(())
/// ```
#[must_use = "a pipeline does nothing until a verb such as `status` or `capture` is called"]
pub struct Pipeline<'a> {
    stages: Vec<Stage<'a>>,
    options: RunSettings,
    pipefail: bool,
    foreground: Option<OpenForeground>,
}

/// A command in a [`Pipeline`], owned or borrowed. [`Command`] and `&mut Command` convert to it.
#[derive(Debug)]
pub struct Stage<'a>(StageCommand<'a>);

#[derive(Debug)]
enum StageCommand<'a> {
    Owned(Box<Command>),
    Borrowed(&'a mut Command),
}

impl<'a> Pipeline<'a> {
    /// Makes a pipeline of these commands. If there are none, its verbs fail.
    ///
    /// ```
    /// use pipewright::{Command, Pipeline};
    /// let mut filters = vec![Command::new("echo")];
    /// filters.extend((0..20).map(|_| Command::new("cat")));
    /// assert_eq!(Pipeline::new(filters).read()?, "");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn new(stages: impl IntoIterator<Item: Into<Stage<'a>>>) -> Pipeline<'a> {
        Pipeline {
            stages: stages.into_iter().map(Into::into).collect(),
            options: RunSettings::default(),
            pipefail: true,
            foreground: None,
        }
    }

    /// Appends a stage, like `|`.
    pub fn pipe(mut self, next: impl Into<Stage<'a>>) -> Pipeline<'a> {
        self.stages.push(next.into());
        self
    }

    /// Returns the pipeline by value, to end a chain of setters. Leaves `self` without stages. See
    /// [`Command`](Command#keeping-or-returning-a-command) for the compiler errors that this avoids.
    ///
    /// ```
    /// use pipewright::{Command, Pipeline};
    /// use std::time::Duration;
    /// fn sorted(text: &str) -> Pipeline<'static> {
    ///     (Command::new("printf").arg(text).owned() | Command::new("sort"))
    ///         .timeout(Duration::from_secs(10))
    ///         .owned()
    /// }
    /// assert_eq!(sorted(r"b\na\n").read()?, "a\nb");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "take")]
    #[doc(alias = "build")]
    pub fn owned(&mut self) -> Pipeline<'a> {
        std::mem::replace(self, Pipeline::new(std::iter::empty::<Stage<'a>>()))
    }

    /// Returns the commands, from first to last.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.stages.iter().map(Stage::command)
    }

    /// Sets whether any failed stage makes the pipeline fail (the default), or only the last one, as in sh.
    ///
    /// ```
    /// use pipewright::Command;
    /// let mut pipeline = Command::new("false") | Command::new("true");
    /// assert_eq!(pipeline.status()?.code(), Some(1));
    /// assert_eq!(pipeline.pipefail(false).status()?.code(), Some(0));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn pipefail(&mut self, pipefail: bool) -> &mut Self {
        self.pipefail = pipefail;
        self
    }

    /// Makes the pipeline the terminal's foreground job while it runs, as a shell does: see [`Command::foreground`].
    /// Stages with their own group ([`Command::own_group`]) share one then, which the first stage leads, because only
    /// one group has the terminal.
    ///
    /// # Platform
    /// Those of [`Command::foreground`]. Windows: no effect.
    ///
    /// ```no_run
    /// use pipewright::Command;
    /// let log = Command::new("git").args(["log", "--color"]).own_group().owned();
    /// let pager = Command::new("less").arg("-R").own_group().owned();
    /// (log | pager).foreground().status()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn foreground(&mut self) -> &mut Self {
        self.foreground = Some(on_demand::OPEN_FOREGROUND);
        self
    }

    fn programs(&self) -> Vec<OsString> {
        self.stages().map(|command| command.get_program().to_owned()).collect()
    }
}

option_setters!(Pipeline<'_>);

/// Returns the names of all stages, for errors.
fn join_names(programs: &[OsString]) -> OsString {
    programs.join(OsStr::new(" | "))
}

impl Stage<'_> {
    pub(crate) fn command(&self) -> &Command {
        match &self.0 {
            StageCommand::Owned(command) => command,
            StageCommand::Borrowed(command) => command,
        }
    }

    pub(crate) fn command_mut(&mut self) -> &mut Command {
        match &mut self.0 {
            StageCommand::Owned(command) => command,
            StageCommand::Borrowed(command) => command,
        }
    }
}

impl Command {
    /// Connects this command's stdout to the next command's stdin: see [`Pipeline`].
    ///
    /// The result borrows this command, and the next one if it is a reference. For a pipeline that owns its
    /// commands, use `first | second` or [`Pipeline::new`], with [`owned`](Self::owned) at the end of a chain.
    ///
    /// ```
    /// use pipewright::Command;
    /// let count = Command::new("printf").arg(r"1\n2\n").pipe(Command::new("wc").arg("-l")).read()?;
    /// assert_eq!(count.trim(), "2");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "|")]
    #[doc(alias = "pipeline")]
    pub fn pipe<'a>(&'a mut self, next: impl Into<Stage<'a>>) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl From<Command> for Stage<'_> {
    fn from(command: Command) -> Self {
        Stage(StageCommand::Owned(Box::new(command)))
    }
}

impl<'a> From<&'a mut Command> for Stage<'a> {
    fn from(command: &'a mut Command) -> Self {
        Stage(StageCommand::Borrowed(command))
    }
}

impl<'a, S: Into<Stage<'a>>> FromIterator<S> for Pipeline<'a> {
    fn from_iter<I: IntoIterator<Item = S>>(stages: I) -> Self {
        Pipeline::new(stages)
    }
}

impl BitOr<Command> for Command {
    type Output = Pipeline<'static>;

    fn bitor(self, next: Command) -> Pipeline<'static> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a> BitOr<&'a mut Command> for Command {
    type Output = Pipeline<'a>;

    fn bitor(self, next: &'a mut Command) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a, S: Into<Stage<'a>>> BitOr<S> for &'a mut Command {
    type Output = Pipeline<'a>;

    fn bitor(self, next: S) -> Pipeline<'a> {
        Pipeline::new([self]).pipe(next)
    }
}

impl<'a, S: Into<Stage<'a>>> BitOr<S> for Pipeline<'a> {
    type Output = Pipeline<'a>;

    fn bitor(self, next: S) -> Pipeline<'a> {
        self.pipe(next)
    }
}

impl fmt::Debug for Pipeline<'_> {
    /// Formats the commands with their own `Debug`; secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages()).finish()
    }
}

impl fmt::Display for Pipeline<'_> {
    /// Formats the pipeline as typed in a shell, on one line. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, command) in self.stages().enumerate() {
            let bar = if index == 0 { "" } else { " | " };
            write!(f, "{bar}{command}")?;
        }
        Ok(())
    }
}

impl Pipeline<'_> {
    /// Runs the pipeline and returns its exit status; a failed stage is `Ok`.
    ///
    /// By default the stages inherit stdio. Piped streams are drained and discarded.
    ///
    /// # Errors
    /// A stage could not be started: the error names it, and the stages started before it are killed and reaped. Or
    /// a stage could not be waited for.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let head = Command::new("head").arg("-1").stdout(Stdio::null()).owned();
    /// let status = (Command::new("yes") | head).status()?;
    /// assert!(status.success(), "the SIGPIPE that ends `yes` is not a failure");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn status(&mut self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.status_async());
        let mut started = self.start(INHERITED)?;
        let is_plain = !started.ends.pass_data() && started.foreground.is_none();
        if is_plain && !self.options.rules.can_stop() {
            // Closed before the wait, so that a stage that reads its stdin to the end ends.
            started.ends.stdin = None;
            let status = started.processes.status();
            return status
                .map_err(|error| Error::cannot(&join_names(&started.programs), "wait for", error));
        }
        let (mut run, programs) = started.into_run(&self.options, Collect::Nothing);
        let whole = run.finish()?;
        let output = pipeline_output(programs, run.children(), whole, self.pipefail)?;
        check_tee(&self.name(), &output)?;
        Ok(output.status)
    }

    /// Runs the pipeline and returns its output as bytes; a failed stage is `Ok`.
    ///
    /// By default the last stage's stdout and every stderr are captured, and the first stage's stdin is empty.
    ///
    /// # Errors
    /// A stage could not be started (the error names it), read from or waited for; none is then running. A timeout
    /// is not an error: see [`Outcome`](crate::Outcome).
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let output = (Command::new("cat").stdin(Stdio::bytes("b\na\n")) | Command::new("sort")).output()?;
    /// assert_eq!(output.stdout, b"a\nb\n");
    /// assert_eq!(output.stages.len(), 2);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn output(&mut self) -> Result<PipelineOutput, Error> {
        run_async_for_test!(self.output_async());
        self.finish(CAPTURED, Collect::All)
    }

    /// Runs the pipeline and returns its output as text; a failed stage is `Ok`.
    ///
    /// Like [`output`](Self::output), but decoded: bytes that are not UTF-8 become U+FFFD, unless
    /// [`strict_utf8`](Self::strict_utf8) is set.
    ///
    /// # Errors
    /// Those of [`output`](Self::output), and output that is not UTF-8 with `strict_utf8`.
    ///
    /// ```
    /// use pipewright::Command;
    /// let capture = (Command::new("sh").args(["-c", "echo oh >&2; exit 3"]) | Command::new("cat")).capture()?;
    /// assert_eq!((capture.stderr.as_str(), capture.status.code()), ("oh\n", Some(3)));
    /// assert_eq!((capture.decided_by, capture.stages[1].status.code()), (0, Some(0)));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn capture(&mut self) -> Result<PipelineCapture, Error> {
        run_async_for_test!(self.capture_async());
        let output = self.output()?;
        self.decoded(output)
    }

    /// Runs the pipeline; anything but success is an error with the reason.
    ///
    /// By default the stages inherit stdin and stdout. Their stderr passes through this process, so that the error
    /// can quote its last part.
    ///
    /// # Errors
    /// Those of [`status`](Self::status), and [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the pipeline
    /// failed, with the program of the failed stage, or was stopped, with the programs of all stages.
    ///
    /// ```
    /// use pipewright::Command;
    /// let error = (Command::new("false") | Command::new("cat")).run().unwrap_err();
    /// assert_eq!(error.to_string(), r#""false" failed: exit status: 1"#);
    /// ```
    pub fn run(&mut self) -> Result<(), Error> {
        run_async_for_test!(self.run_async());
        let output = self.finish(STDERR_TEED, Collect::StderrTail)?;
        check_success(&output.program, &output)
    }

    /// Runs the pipeline and returns the last stage's stdout as text, without trailing line ends; anything but
    /// success is an error with the reason.
    ///
    /// The default streams are those of [`output`](Self::output).
    ///
    /// # Errors
    /// Those of [`capture`](Self::capture) and [`run`](Self::run).
    ///
    /// ```
    /// use pipewright::Command;
    /// let shout = (Command::new("echo").arg("hi") | Command::new("tr").args(["a-z", "A-Z"])).read()?;
    /// assert_eq!(shout, "HI");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read(&mut self) -> Result<String, Error> {
        run_async_for_test!(self.read_async());
        let output = self.output()?;
        self.trimmed(output)
    }

    /// Returns the stdout of a pipeline that succeeded, without trailing line ends.
    fn trimmed(&self, output: PipelineOutput) -> Result<String, Error> {
        check_success(&output.program, &output)?;
        let mut text = into_text(&self.name(), self.options.decoding, output.whole)?.stdout;
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(text)
    }

    /// Returns the output as text.
    fn decoded(&self, output: PipelineOutput) -> Result<PipelineCapture, Error> {
        let Pipelined { whole, stages, decided_by } = output;
        let whole = into_text(&self.name(), self.options.decoding, whole)?;
        Ok(Pipelined { whole, stages, decided_by })
    }

    /// Starts the pipeline and returns its stages, in the shape of a [`Child`](crate::Child).
    ///
    /// By default the stages inherit stdio. Input that was given to the first command is fed from the start on,
    /// even if no verb waits. The pipeline's timeouts and limits apply while a verb waits.
    ///
    /// # Errors
    /// A stage could not be started; none is running.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// use std::io::Write;
    /// let mut child = (Command::new("cat").stdin(Stdio::piped())
    ///     | Command::new("sort").stdout(Stdio::piped()))
    /// .spawn()?;
    /// child.stdin.take().unwrap().write_all(b"2\n1\n").unwrap();
    /// assert_eq!(child.wait_with_output()?.stdout, b"1\n2\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn spawn(&mut self) -> Result<PipelineChild, Error> {
        self.options.prepare_enforcement(&self.name())?;
        Ok(PipelineChild::new(self.start(INHERITED)?, &self.options, self.pipefail))
    }

    /// Starts all stages and runs them to their end.
    fn finish(
        &mut self,
        defaults: StdioDefaults,
        collect: Collect,
    ) -> Result<PipelineOutput, Error> {
        let (mut run, programs) = self.start(defaults)?.into_run(&self.options, collect);
        let whole = run.finish()?;
        pipeline_output(programs, run.children(), whole, self.pipefail)
    }

    pub(crate) fn name(&self) -> OsString {
        join_names(&self.programs())
    }
}

impl Pipeline<'_> {
    /// Starts the pipeline and returns an iterator over its lines as they arrive: those of the last stage's stdout
    /// and of every stderr. Otherwise like [`Command::lines`](crate::Command::lines).
    ///
    /// # Errors
    /// A stage could not be started; none is running. Later errors are items.
    ///
    /// ```
    /// use pipewright::Command;
    /// let mut lines = (Command::new("printf").arg("b\na\n") | Command::new("sort")).lines()?;
    /// assert_eq!(lines.next().unwrap()?.text, "a");
    /// assert!(lines.finish()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn lines(&mut self) -> Result<Lines, Error> {
        let RunSettings { decoding, max_line_bytes, .. } = self.options;
        decoding.check_splits_at_line_feeds(&self.name())?;
        Ok(Lines::new(self.start_steps()?, decoding, max_line_bytes))
    }

    /// Starts the pipeline and returns an iterator over its events as they happen.
    /// [`Event::Started`](crate::Event::Started) has the first stage's process id. Otherwise like
    /// [`Command::events`](crate::Command::events).
    ///
    /// # Errors
    /// Those of [`lines`](Self::lines).
    ///
    /// ```
    /// use pipewright::{Command, Event};
    /// let mut last = None;
    /// for event in (Command::new("false") | Command::new("cat")).events()? {
    ///     last = Some(event?);
    /// }
    /// assert!(matches!(last, Some(Event::Exited(ending)) if ending.status.code() == Some(1)));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn events(&mut self) -> Result<Events, Error> {
        self.start_steps().map(Events::new)
    }

    /// Starts the pipeline and returns its output, which the caller waits for in steps, like
    /// [`Command::start_output`](crate::Command::start_output).
    ///
    /// # Errors
    /// Those of [`output`](Self::output).
    pub fn start_output(&mut self) -> Result<RunningOutput, Error> {
        self.options.prepare_enforcement(&self.name())?;
        Ok(RunningOutput::new(self.start_capture()?.enforced()))
    }

    fn start_steps(&mut self) -> Result<Run, Error> {
        self.options.prepare_enforcement(&self.name())?;
        let mut started = self.start(CAPTURED)?;
        let stdin = started.ends.stdin.take();
        let (run, _) = started.into_run(&self.options, Collect::Chunks);
        Ok(run.decided_by(self.decide()).enforced().with_stdin(stdin))
    }

    /// Starts a capture of the whole pipeline, for a `RunSet`.
    pub(crate) fn start_capture(&mut self) -> Result<Run, Error> {
        let (run, _) = self.start(CAPTURED)?.into_run(&self.options, Collect::All);
        Ok(run.decided_by(self.decide()))
    }

    fn decide(&self) -> Decide {
        if self.pipefail { decide_with_pipefail } else { decide_by_last }
    }
}

fn decide_with_pipefail(children: &[ChildHandle], whole: Output) -> io::Result<Output> {
    decide(children, whole, true)
}

fn decide_by_last(children: &[ChildHandle], whole: Output) -> io::Result<Output> {
    decide(children, whole, false)
}

fn decide(children: &[ChildHandle], whole: Output, pipefail: bool) -> io::Result<Output> {
    let stages: io::Result<Vec<StageEnd>> =
        children.iter().map(|child| StageEnd::of(std::ffi::OsString::new(), child)).collect();
    Ok(with_stages(whole, stages?, pipefail).whole)
}

#[cfg(feature = "tokio")]
async_verbs!(Pipeline<'_>, PipelineOutput, PipelineCapture);

#[cfg(feature = "tokio")]
impl Pipeline<'_> {
    async fn finish_async(
        &mut self,
        defaults: StdioDefaults,
        collect: Collect,
    ) -> Result<PipelineOutput, Error> {
        check_runtime(&self.name(), FailedOperation::Start)?;
        let (run, programs) = self.start(defaults)?.into_run(&self.options, collect);
        let mut run = run.into_future();
        let whole = (&mut run).await?;
        pipeline_output(programs, run.children(), whole, self.pipefail)
    }
}
