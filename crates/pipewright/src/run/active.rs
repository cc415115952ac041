//! A run that is ready to be seen through to its end: the value that a start returns.

#[cfg(feature = "tokio")]
mod task;

use std::ffi::{OsStr, OsString};
use std::io;

use pipewright_os::process::child::ChildHandle;

use super::options::Options;
use super::process::Processes;
use super::started::{Collect, ParentEnds, Started, streams};
use super::state::{RunInfo, RunState};
use crate::error::{Error, Failed};
use crate::output::Output;

/// A run whose children have been started.
///
/// # Drop
/// Closes the streams. The children that have not ended go to the reaper, or are killed if they are killed on drop.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    pub(crate) processes: Processes,
    pub(crate) state: RunState,
    pub(crate) program: OsString,
    pub(crate) options: Options,
    /// The rule of a pipeline by which the status of the whole is chosen.
    pub(crate) decide: Option<Decide>,
}

/// Makes the result of the whole out of the ends of several children.
pub(crate) type Decide = fn(&[ChildHandle], Output) -> io::Result<Output>;

impl ActiveRun {
    /// Takes a child that has just been started.
    pub(crate) fn of_child(
        started: Started,
        program: &OsStr,
        options: &Options,
        collect: Collect,
    ) -> ActiveRun {
        let Started { process, ends, at, foreground } = started;
        let info = RunInfo {
            program: program.to_owned(),
            started: at,
            background_feed: None,
            foreground,
            trace: process.trace(),
        };
        ActiveRun::new(Processes::of(process), info, ends, options, collect)
    }

    /// Takes children that have been started. Their stdin is closed if the caller has not taken it: the first child is
    /// to find the end of its input.
    pub(crate) fn new(
        processes: Processes,
        info: RunInfo,
        ends: ParentEnds,
        options: &Options,
        collect: Collect,
    ) -> ActiveRun {
        let ParentEnds { stdin, feed, stdout, stderr } = ends;
        drop(stdin);
        let streams = streams([stdout, stderr], collect, options.limit);
        let program = info.program.clone();
        let state = RunState::new(&options.rules, info, feed, streams);
        ActiveRun { processes, state, program, options: options.clone(), decide: None }
    }

    /// Sets the rule by which the status of several children is chosen.
    pub(crate) fn decided_by(self, decide: Decide) -> ActiveRun {
        ActiveRun { decide: Some(decide), ..self }
    }

    /// Sees all children through to their ends on the calling thread. After an error none is left.
    pub(crate) fn finish(self) -> Result<Output, Error> {
        let decide = self.decide;
        self.finish_with(|children, output| decided(decide, children, output))
    }

    /// As [`finish`](Self::finish), and makes the result of the output and of the children, which have ended.
    pub(crate) fn finish_with<T>(
        mut self,
        conclude: impl FnOnce(&[ChildHandle], Output) -> io::Result<T>,
    ) -> Result<T, Error> {
        let (children, rules) = (&self.processes, &self.options.rules);
        let finished = loop {
            match self.state.step(children, rules) {
                Ok(true) => {}
                Ok(false) => break self.state.finish(children),
                Err(failed) => {
                    self.state.abandon(children);
                    break Err(failed);
                }
            }
        };
        concluded(&self.program, children, finished, conclude)
    }
}

/// Applies the rule of a pipeline, if there is one.
pub(crate) fn decided(
    decide: Option<Decide>,
    children: &[ChildHandle],
    output: Output,
) -> io::Result<Output> {
    match decide {
        Some(decide) => decide(children, output),
        None => Ok(output),
    }
}

/// Makes the result of the output and of the children.
fn concluded<T>(
    program: &OsStr,
    children: &[ChildHandle],
    finished: Result<Output, Failed>,
    conclude: impl FnOnce(&[ChildHandle], Output) -> io::Result<T>,
) -> Result<T, Error> {
    let concluded = finished
        .and_then(|output| conclude(children, output).map_err(|source| ("wait for", source)));
    concluded.map_err(|failed| error_of(program, failed))
}

pub(super) fn error_of(program: &OsStr, (doing, source): Failed) -> Error {
    Error::talk(program, doing, source)
}
