//! A command or a pipeline that can be run and captured.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::wake::WaitEvent;

use crate::command::{BegunChild, Command, StartingChild};
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::pipeline::{Pipeline, Stage};
use crate::run::Run;

/// A command or a pipeline, owned or borrowed: the type that [`run_all`](crate::run_all) and
/// [`Runner::push`](crate::Runner::push) convert their commands to.
#[derive(Debug)]
pub struct Runnable<'a>(Box<dyn StartCapture + Send + Sync + 'a>);

/// A command that starts a capture. Used as a trait object, so that a program without pipelines does not contain their
/// code.
trait StartCapture: fmt::Debug {
    fn start(&mut self) -> Result<Run, Error>;
    /// Begins the capture, and does not wait for a slot's answer if the command is owned.
    fn begin(mut self: Box<Self>) -> Result<BegunCapture, Error> {
        self.start().map(BegunCapture::Running)
    }
    /// Returns the name of the program, for errors.
    fn name(&self) -> OsString;
}

pub(crate) enum BegunCapture {
    Running(Run),
    /// A slot has been asked to start the command.
    Starting(StartingCapture),
}

/// A capture whose command a slot has been asked to start.
#[derive(Debug)]
pub(crate) struct StartingCapture {
    child: StartingChild,
    command: Box<Command>,
    phase: StartPhase,
    /// The time of the next phase.
    until: Option<Instant>,
}

/// A phase of a start. Each may end with its result.
#[derive(Debug, Clone, Copy)]
enum StartPhase {
    Wanted,
    /// Its child would be stopped at once. A start that answers in time is left to do so: then the child gets its stop signal.
    Unwanted(Reason),
    /// The child is killed, and what starts it.
    Killed(Reason),
}

/// The reason why a start is not wanted any more.
#[derive(Debug, Clone, Copy)]
enum Reason {
    Stop,
    Timeout,
}

/// The time that a start has that is not wanted any more.
const UNWANTED_START_WAIT: Duration = Duration::from_secs(1);

/// The time that a killed start has to end. One that takes longer is stuck in the kernel.
const KILLED_START_WAIT: Duration = Duration::from_secs(5);

impl StartingCapture {
    fn new(child: StartingChild, command: Box<Command>) -> StartingCapture {
        let until = child.until();
        StartingCapture { child, command, phase: StartPhase::Wanted, until }
    }

    /// Returns the event that ends the wait for the start.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        self.child.result()
    }

    /// Returns the time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Stops it. If its child runs then, that has to be stopped, too.
    pub(crate) fn stop(&mut self) {
        if matches!(self.phase, StartPhase::Wanted) {
            self.enter(StartPhase::Unwanted(Reason::Stop), UNWANTED_START_WAIT);
        }
    }

    /// Returns true if it was stopped, and not by its timeout.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.phase, StartPhase::Unwanted(Reason::Stop) | StartPhase::Killed(Reason::Stop))
    }

    /// Enters the next phase if it is time for it. Returns true after the last one: its program or its directory may be on a mount
    /// that does not answer, and the kernel does not end it.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        if self.until.is_none_or(|until| now < until) {
            return false;
        }
        match self.phase {
            StartPhase::Wanted => {
                self.enter(StartPhase::Unwanted(Reason::Timeout), UNWANTED_START_WAIT);
            }
            StartPhase::Unwanted(reason) => {
                self.enter(StartPhase::Killed(reason), KILLED_START_WAIT);
                self.child.end();
            }
            StartPhase::Killed(_) => return true,
        }
        false
    }

    fn enter(&mut self, phase: StartPhase, limit: Duration) {
        self.phase = phase;
        self.until = Instant::now().checked_add(limit);
    }

    /// Returns the error of a start that does not end.
    pub(crate) fn give_up(self) -> Error {
        self.unanswered("answers, and its process cannot be killed now")
    }

    fn unanswered(&self, words: &str) -> Error {
        let kind = match self.is_stopped() {
            true => io::ErrorKind::Interrupted,
            false => io::ErrorKind::TimedOut,
        };
        let source = io::Error::new(kind, format!("its file or its directory never {words}"));
        let program = self.command.get_program();
        Error::new(program, FailedOperation::Start, ErrorKind::Io, Some(source))
    }

    /// Waits for the start.
    pub(crate) fn finish(self) -> Result<Run, Error> {
        let is_killed = matches!(self.phase, StartPhase::Killed(_));
        let unanswered = is_killed.then(|| self.unanswered("answered"));
        match self.command.finish_child(self.child) {
            Ok(started) => Ok(self.command.captured(started)),
            Err(error) => Err(unanswered.unwrap_or(error)),
        }
    }
}

impl Runnable<'_> {
    /// Begins the capture, and does not wait for a slot's answer if the command is owned.
    pub(crate) fn begin(self) -> Result<BegunCapture, Error> {
        self.0.begin()
    }

    /// Starts the capture.
    #[cfg(feature = "tokio")]
    pub(crate) fn start(&mut self) -> Result<Run, Error> {
        self.0.start()
    }

    /// Returns the name of the program, for errors.
    pub(crate) fn name(&self) -> OsString {
        self.0.name()
    }

    /// Returns the error of a command that was cancelled before it started.
    pub(crate) fn cancelled(&self) -> Error {
        Error::new(&self.name(), FailedOperation::Start, ErrorKind::Cancelled, None)
    }
}

impl StartCapture for Command {
    fn start(&mut self) -> Result<Run, Error> {
        self.start_capture()
    }

    fn begin(self: Box<Self>) -> Result<BegunCapture, Error> {
        Ok(match self.begin_capture()? {
            BegunChild::Started(started) => BegunCapture::Running(self.captured(started)),
            BegunChild::Starting(child) => {
                BegunCapture::Starting(StartingCapture::new(child, self))
            }
        })
    }

    fn name(&self) -> OsString {
        self.get_program().to_owned()
    }
}

impl StartCapture for Stage<'_> {
    fn start(&mut self) -> Result<Run, Error> {
        self.command_mut().start_capture()
    }

    fn name(&self) -> OsString {
        self.command().get_program().to_owned()
    }
}

impl StartCapture for Pipeline<'_> {
    fn start(&mut self) -> Result<Run, Error> {
        self.start_capture()
    }

    fn name(&self) -> OsString {
        Pipeline::name(self)
    }
}

impl<T: StartCapture> StartCapture for &mut T {
    fn start(&mut self) -> Result<Run, Error> {
        (**self).start()
    }

    fn name(&self) -> OsString {
        (**self).name()
    }
}

impl From<Command> for Runnable<'_> {
    fn from(command: Command) -> Self {
        Runnable(Box::new(command))
    }
}

impl<'a> From<&'a mut Command> for Runnable<'a> {
    fn from(command: &'a mut Command) -> Self {
        Runnable(Box::new(command))
    }
}

impl<'a> From<Stage<'a>> for Runnable<'a> {
    fn from(stage: Stage<'a>) -> Self {
        Runnable(Box::new(stage))
    }
}

impl<'a> From<Pipeline<'a>> for Runnable<'a> {
    fn from(pipeline: Pipeline<'a>) -> Self {
        Runnable(Box::new(pipeline))
    }
}

impl<'a> From<&'a mut Pipeline<'_>> for Runnable<'a> {
    fn from(pipeline: &'a mut Pipeline<'_>) -> Self {
        Runnable(Box::new(pipeline))
    }
}
