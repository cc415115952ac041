//! A command or a pipeline that can be run and captured.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::wake::WaitEvent;

use crate::command::{Aside, BegunChild, Command, StartingChild};
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
    /// Begins the capture, and does not wait for a slot's answer if the command is owned. `is_patient` is false if
    /// other starts wait for their files.
    fn begin(mut self: Box<Self>, _is_patient: bool) -> Result<BegunCapture, Error> {
        self.start().map(BegunCapture::Running)
    }
    /// Returns the name of the program, for errors.
    fn name(&self) -> OsString;
}

pub(crate) enum BegunCapture {
    Running(Run),
    /// A slot or a thread has been asked to start the command.
    Starting(StartingCapture),
}

/// A capture whose command a slot or a thread has been asked to start.
#[derive(Debug)]
pub(crate) struct StartingCapture {
    starter: Starter,
    phase: StartPhase,
    /// The time of the next phase.
    until: Option<Instant>,
}

/// A start that has been asked for.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are in a slot, and have no allocation for it"
)]
enum Starter {
    Slot(StartingChild, Box<Command>),
    Thread(Box<dyn Aside>),
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
    fn new(starter: Starter) -> StartingCapture {
        let until = match &starter {
            Starter::Slot(child, _) => child.until(),
            Starter::Thread(start) => start.until(),
        };
        StartingCapture { starter, phase: StartPhase::Wanted, until }
    }

    /// Returns the event that ends the wait for the start.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        match &self.starter {
            Starter::Slot(child, _) => child.result(),
            Starter::Thread(start) => start.result(),
        }
    }

    /// Returns true if it waits on a thread of its own.
    pub(crate) fn is_aside(&self) -> bool {
        matches!(self.starter, Starter::Thread(_))
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
                match &mut self.starter {
                    Starter::Slot(child, _) => child.end(),
                    Starter::Thread(start) => start.end(),
                }
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
        let program = match &self.starter {
            Starter::Slot(_, command) => command.get_program(),
            Starter::Thread(start) => start.command().get_program(),
        };
        Error::new(program, FailedOperation::Start, ErrorKind::Io, Some(source))
    }

    /// Waits for the start.
    pub(crate) fn finish(self) -> Result<Run, Error> {
        let is_killed = matches!(self.phase, StartPhase::Killed(_));
        let unanswered = is_killed.then(|| self.unanswered("answered"));
        let run = match self.starter {
            Starter::Slot(child, command) => {
                command.finish_child(child).map(|started| command.captured(started))
            }
            Starter::Thread(start) => start.finish(),
        };
        run.map_err(|error| unanswered.unwrap_or(error))
    }
}

impl Runnable<'_> {
    /// Begins the capture, and does not wait for a slot's answer if the command is owned. With `is_patient` it waits
    /// for a moment, if the command may start aside.
    pub(crate) fn begin(self, is_patient: bool) -> Result<BegunCapture, Error> {
        self.0.begin(is_patient)
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

    fn begin(self: Box<Self>, is_patient: bool) -> Result<BegunCapture, Error> {
        let starter = match (self.aside(), is_patient) {
            (Some(start_aside), false) => Starter::Thread(start_aside(*self)?),
            (aside, _) => match (self.begin_capture(), aside) {
                (Ok(BegunChild::Started(started)), _) => {
                    return Ok(BegunCapture::Running(self.captured(started)));
                }
                (Ok(BegunChild::Starting(child)), _) => Starter::Slot(child, self),
                (Err(error), Some(start_aside)) if error.is_unanswered_start() => {
                    Starter::Thread(start_aside(*self)?)
                }
                (Err(error), _) => return Err(error),
            },
        };
        Ok(BegunCapture::Starting(StartingCapture::new(starter)))
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
