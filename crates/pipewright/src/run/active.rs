//! A run whose children have been started: the value that a start returns.

#[cfg(feature = "tokio")]
mod task;

use std::ffi::{OsStr, OsString};
use std::io;

use pipewright_os::process::child::ChildHandle;

use super::info::RunInfo;
use super::options::RunSettings;
use super::process::{Children as _, Processes};
use super::started::{Collect, ParentEnds, Started, streams};
use super::state::RunState;
use super::terminal::HeldTerminal;
use crate::error::{Error, OperationError};
use crate::output::Output;

/// A run whose children have been started.
///
/// # Drop
/// Closes the streams. Children that still run go to the reaper, or are killed if `kill_on_drop` is set.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    pub(crate) processes: Processes,
    pub(crate) state: RunState,
    pub(crate) program: OsString,
    pub(crate) options: RunSettings,
    /// The pipeline's rule for the status of the whole.
    pub(crate) decide: Option<Decide>,
}

/// Returns the result of a whole pipeline from the ends of its children.
pub(crate) type Decide = fn(&[ChildHandle], Output) -> io::Result<Output>;

impl ActiveRun {
    /// Creates the run of a child that has just been started.
    pub(crate) fn of_child(
        started: Started,
        program: &OsStr,
        options: &RunSettings,
        collect: Collect,
    ) -> ActiveRun {
        let Started { process, mut ends, at, foreground } = started;
        let terminal = ends.terminal.take();
        let has_terminal = terminal.is_some();
        let info = RunInfo {
            program: program.to_owned(),
            started: at,
            made_in: process.made_in(),
            background_feed: None,
            foreground,
            stderr_merged: ends.stderr_merged,
            // The reader is another handle of this process's side.
            terminal: HeldTerminal {
                pty: None,
                child_end: terminal.map(|it| it.child_end.hold(it.pty)),
            },
            trace: process.trace(),
        };
        let collect = match collect {
            Collect::StderrTail if has_terminal => Collect::Tails,
            collect => collect,
        };
        ActiveRun::new(Processes::of(process), info, ends, options, collect)
    }

    /// Creates the run of started children. Closes a stdin that the caller has not taken, so that the first child finds
    /// the end of its input.
    pub(crate) fn new(
        processes: Processes,
        info: RunInfo,
        ends: ParentEnds,
        options: &RunSettings,
        collect: Collect,
    ) -> ActiveRun {
        let ParentEnds { stdin, feed, stdout, stderr, .. } = ends;
        drop(stdin);
        let streams = streams([stdout, stderr], collect, options.limit);
        let program = info.program.clone();
        let state = RunState::new(&options.rules, info, feed, streams);
        ActiveRun { processes, state, program, options: options.clone(), decide: None }
    }

    /// Sets the rule for the status of several children.
    pub(crate) fn decided_by(self, decide: Decide) -> ActiveRun {
        ActiveRun { decide: Some(decide), ..self }
    }

    /// Runs all children to their ends on the calling thread. After an error no child is left.
    pub(crate) fn finish(self) -> Result<Output, Error> {
        let decide = self.decide;
        self.finish_with(|children, output| decided(decide, children, output))
    }

    /// Runs as [`finish`](Self::finish) does, and converts the output and the ended children to the result.
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

/// Converts the output and the ended children to the result.
fn concluded<T>(
    program: &OsStr,
    children: &[ChildHandle],
    finished: Result<Output, OperationError>,
    conclude: impl FnOnce(&[ChildHandle], Output) -> io::Result<T>,
) -> Result<T, Error> {
    let concluded = finished
        .and_then(|output| conclude(children, output).map_err(|source| ("wait for", source)));
    concluded.map_err(|failed| error_of(program, failed))
}

pub(super) fn error_of(program: &OsStr, (doing, source): OperationError) -> Error {
    Error::cannot(program, doing, source)
}
