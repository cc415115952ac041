//! A command or a pipeline that can be run and captured.

use std::ffi::OsString;
use std::fmt;

use pipewright_os::base::event::WaitEvent;

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
}

impl StartingCapture {
    /// Returns the event that ends the wait for the start.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        self.child.result()
    }

    /// Waits for the start.
    pub(crate) fn finish(self) -> Result<Run, Error> {
        let started = self.command.finish_child(self.child)?;
        Ok(self.command.captured(started))
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
                BegunCapture::Starting(StartingCapture { child, command: self })
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
