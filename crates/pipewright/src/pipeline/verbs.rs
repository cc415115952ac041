//! The verbs of a pipeline: each ends the chain and runs it.

use std::ffi::OsString;
use std::io;

use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::ExitStatus;

use super::child::PipelineChild;
use super::end::{Pipelined, StageEnd, pipeline_output, with_stages};
use super::{Pipeline, PipelineCapture, PipelineOutput, join_names};
#[cfg(feature = "tokio")]
use crate::command::async_verbs;
use crate::command::{CAPTURED, INHERITED, STDERR_TEED, StdioDefaults};
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
use crate::run::{Children as _, Collect, Decide, Run, RunSettings};
use crate::running_output::RunningOutput;
#[cfg(feature = "tokio")]
use crate::runtime::check_runtime;

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
    pub(super) fn trimmed(&self, output: PipelineOutput) -> Result<String, Error> {
        check_success(&output.program, &output)?;
        let mut text = into_text(&self.name(), self.options.decoding, output.whole)?.stdout;
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(text)
    }

    /// Returns the output as text.
    pub(super) fn decoded(&self, output: PipelineOutput) -> Result<PipelineCapture, Error> {
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
