//! The verbs that hand out what a pipeline writes while it runs.

use std::io;

use pipewright_os::process::child::ChildHandle;

use super::Pipeline;
use super::end::{StageEnd, conclude};
use super::start::Running;
use super::verbs::Seen;
use crate::command::{Begun, CAPTURED, Keep};
use crate::drive::{Decide, Run, Sink, Stepwise};
use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::outcome::Source;
use crate::output::Output;

impl Pipeline<'_> {
    /// Starts the pipeline and gives its lines as they arrive: those of the last stage's stdout, and
    /// those of every stderr. Otherwise as [`Command::lines`](crate::Command::lines).
    ///
    /// # Errors
    /// A stage could not be started; there is then none. What goes wrong later is an item.
    ///
    /// ```
    /// use pipewright::Command;
    /// let mut lines = (Command::new("printf").arg("b\na\n") | Command::new("sort")).lines()?;
    /// assert_eq!(lines.next().unwrap()?.text, "a");
    /// assert!(lines.finish()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn lines(&mut self) -> Result<Lines, Error> {
        self.decoding.check_splits_at_line_feeds(&self.name())?;
        Ok(Lines::new(self.step_by_step()?, self.decoding, self.max_line_bytes))
    }

    /// Starts the pipeline and gives what happens to it, as it happens. The process id of
    /// [`Event::Started`](crate::Event::Started) is that of the first stage. Otherwise as
    /// [`Command::events`](crate::Command::events).
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
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
        self.step_by_step().map(Events::new)
    }

    fn step_by_step(&mut self) -> Result<Stepwise, Error> {
        self.rules.prepare_to_keep(&self.name())?;
        let running = self.start(CAPTURED)?;
        let Running { processes, stdin, feed, stdout, stderr, at, .. } = running;
        let sink = || Sink::handing_out(self.limit);
        let streams = [
            stdout.map(|end| end.into_stream(Source::Stdout, sink())),
            stderr.map(|end| end.into_stream(Source::Stderr, sink())),
        ];
        let run =
            Run::new(&self.rules, at, feed, streams).of(&self.name()).traced(processes.trace());
        let decide = Some(self.decide());
        let steps = Stepwise::of_all(processes, self.name(), self.rules.clone(), run, decide);
        Ok(steps.with_stdin(stdin))
    }

    /// Starts a capture of the whole, for those who run many.
    pub(crate) fn begin_capture(&mut self) -> Result<Begun, Error> {
        let mut running = self.start(CAPTURED)?;
        // Nobody will write to it, so the first stage is to find the end of its input.
        running.stdin = None;
        let (run, Seen { processes, .. }) = running.into_run(&self.rules, self.limit, Keep::Both);
        Ok(Begun {
            processes,
            run,
            program: self.name(),
            rules: self.rules.clone(),
            decoding: self.decoding,
            decide: Some(self.decide()),
        })
    }

    fn decide(&self) -> Decide {
        if self.pipefail { decide_with_pipefail } else { decide_by_last }
    }
}

fn decide_with_pipefail(exits: &[ChildHandle], whole: Output) -> io::Result<Output> {
    decide(exits, whole, true)
}

fn decide_by_last(exits: &[ChildHandle], whole: Output) -> io::Result<Output> {
    decide(exits, whole, false)
}

fn decide(exits: &[ChildHandle], whole: Output, pipefail: bool) -> io::Result<Output> {
    let stages: io::Result<Vec<StageEnd>> =
        exits.iter().map(|exit| StageEnd::of(std::ffi::OsString::new(), exit)).collect();
    Ok(conclude(whole, stages?, pipefail).whole)
}
