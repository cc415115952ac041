//! The verbs that return output of a pipeline while it runs.

use std::io;

use pipewright_os::process::child::ChildHandle;

use super::Pipeline;
use super::end::{StageEnd, with_stages};
use crate::command::CAPTURED;
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::output::Output;
use crate::run::{Collect, Decide, Run, RunSettings};
use crate::running_output::RunningOutput;

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
