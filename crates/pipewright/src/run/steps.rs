//! A run that advances only when the caller asks for its next chunk.

mod descriptor;
mod running;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::process::child::ChildHandle;

use super::active::{ActiveRun, Decide, decided, error_of};
use super::background::Enforcement;
use super::process::Processes;
use super::state::RunState;
use super::stream::Chunk;
use super::suspended::SuspendedRun;
use crate::error::{Error, OperationError};
use crate::outcome::Source;
use crate::output::{Ending, Output};
use crate::rules::Rules;
pub(crate) use descriptor::StepsDescriptor;
pub use running::{ChildEnd, RunHandle};

/// A run of started children, whose streams are handed out between two steps.
///
/// Nothing happens between the calls: a child that writes too fast blocks, and the next step carries out a stop that is
/// due.
///
/// # Drop
/// Closes the streams. The children go to the reaper.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Dropped before the processes, because it has handles of them.
    enforcement: Option<Enforcement>,
    /// The place of the run between two calls, if its rules are enforced in the background.
    shared: Option<Arc<SuspendedRun>>,
    processes: Arc<Processes>,
    program: OsString,
    rules: Rules,
    /// The pipeline's rule for the status of the whole.
    decide: Option<Decide>,
    /// This process's end of a piped stdin, until the caller takes it or waits.
    stdin: Option<PipeWriter>,
    /// `None` after the end, and while it is in `shared`.
    run: Option<Box<RunState>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Everything has been read, and all children have ended.
    Ended,
    /// An error has been reported, and no child is left.
    Failed,
}

impl ActiveRun {
    /// Converts the run to one that advances step by step.
    pub(crate) fn into_steps(self) -> Steps {
        Steps::new(self)
    }
}

impl Steps {
    fn new(active: ActiveRun) -> Steps {
        let ActiveRun { processes, state, program, options, decide } = active;
        let processes = Arc::new(processes);
        let mut run = Some(Box::new(state));
        let suspended = Arc::new(SuspendedRun::default());
        let enforcement = options.enforce(&processes, &suspended);
        let shared = enforcement.is_some().then_some(suspended);
        if let (Some(suspended), Some(run)) = (&shared, run.take_if(|_| shared.is_some())) {
            suspended.put(run);
        }
        let (stdin, state) = (None, State::Running);
        let rules = options.rules;
        Steps { enforcement, shared, processes, program, rules, decide, stdin, run, state }
    }

    /// Takes the run back from the enforcement in the background.
    fn resume(&mut self) {
        // It may be here already: an ended run is not put back.
        if let Some(run) = self.shared.as_ref().and_then(|suspended| suspended.take_out()) {
            self.run = Some(run);
        }
    }

    /// Leaves the run to the enforcement in the background.
    fn suspend(&mut self) {
        if let (Some(suspended), Some(run)) =
            (&self.shared, self.run.take_if(|_| self.shared.is_some()))
        {
            suspended.put(run);
        }
    }

    /// Adds this process's end of the child's stdin.
    pub(crate) fn with_stdin(self, stdin: Option<PipeWriter>) -> Steps {
        Steps { stdin, ..self }
    }

    /// Takes this process's end of a piped stdin, if nothing has taken it or waited yet.
    pub(crate) fn take_stdin(&mut self) -> Option<PipeWriter> {
        self.stdin.take()
    }

    /// Returns the process id; with several children, that of the first.
    pub(crate) fn pid(&self) -> u32 {
        self.processes.first().map_or(0, ChildHandle::pid)
    }

    /// Returns the children.
    #[cfg(feature = "tokio")]
    pub(super) fn children(&self) -> &[ChildHandle] {
        &self.processes
    }

    pub(crate) fn program(&self) -> &OsString {
        &self.program
    }

    /// Returns true if an error has been reported.
    pub(crate) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Takes the new bytes of a stream, and the rest once at its end.
    pub(crate) fn take(&mut self, source: Source) -> Option<Chunk> {
        if self.has_failed() {
            return None;
        }
        self.resume();
        let taken = self.run.as_mut().and_then(|run| run.take(source));
        self.suspend();
        taken
    }

    /// Gives a buffer back. Its bytes come before the next chunk of the stream.
    pub(crate) fn give_back(&mut self, source: Source, buffer: Vec<u8>) {
        self.resume();
        if let Some(run) = &mut self.run {
            run.give_back(source, buffer);
        }
        self.suspend();
    }

    /// Waits once. Returns false if there was nothing left to wait for.
    pub(crate) fn step(&mut self) -> Result<bool, Error> {
        self.step_until(None)
    }

    /// Steps as [`step`](Self::step) does, but waits no longer than `until`.
    pub(crate) fn step_until(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        run_async_for_test!(self.step_async(until));
        self.resume();
        let (State::Running, Some(run)) = (self.state, &mut self.run) else { return Ok(false) };
        // The caller has not taken it, so the child must find the end of its input.
        self.stdin = None;
        let stepped = run.step_until(until, &self.processes, &self.rules);
        if stepped.is_err() {
            run.abandon(&self.processes);
        }
        self.suspend();
        self.note(stepped)
    }

    /// Returns true once all children are known to have ended: often there is nothing left to wait for then.
    pub(crate) fn have_children_ended(&mut self) -> bool {
        self.resume();
        let ended = self.run.as_ref().is_some_and(|run| run.have_children_ended());
        self.suspend();
        ended
    }

    fn note(&mut self, stepped: Result<bool, OperationError>) -> Result<bool, Error> {
        match stepped {
            Ok(true) => {}
            Ok(false) => self.state = State::Ended,
            Err(_) => self.state = State::Failed,
        }
        stepped.map_err(|failed| error_of(&self.program, failed))
    }

    /// Returns the result without streams, once, after a run that has not failed.
    pub(crate) fn ending(&mut self) -> Option<Result<Ending, Error>> {
        self.output().map(|output| output.map(Output::without_streams))
    }

    /// Returns the result as [`ending`](Self::ending) does, with the kept bytes of the streams.
    pub(crate) fn output(&mut self) -> Option<Result<Output, Error>> {
        if self.state != State::Ended {
            return None;
        }
        self.resume();
        // The limits no longer apply.
        self.enforcement = None;
        let ended = self.run.take()?.finish(&self.processes);
        let ended = ended.and_then(|whole| {
            decided(self.decide, &self.processes, whole).map_err(|source| ("wait for", source))
        });
        Some(ended.map_err(|failed| error_of(&self.program, failed)))
    }

    /// Reads and discards the rest, waits for the children, and returns the result without streams.
    pub(crate) fn finish(mut self) -> Result<Ending, Error> {
        self.keep_nothing();
        while self.step()? {}
        self.ending().unwrap_or_else(|| Err(self.already_reported()))
    }

    /// Returns a copy of the bytes of both streams that have been kept.
    pub(crate) fn so_far(&mut self) -> [Vec<u8>; 2] {
        self.resume();
        let run = self.run.as_ref();
        let copies = [Source::Stdout, Source::Stderr]
            .map(|source| run.map_or_else(Vec::new, |run| run.so_far(source).to_vec()));
        self.suspend();
        copies
    }

    /// Returns the number of bytes that have been kept of the longer stream.
    pub(crate) fn bytes_so_far(&mut self) -> usize {
        self.resume();
        let run = self.run.as_ref();
        let lengths = [Source::Stdout, Source::Stderr]
            .map(|source| run.map_or(0, |run| run.so_far(source).len()));
        self.suspend();
        lengths.into_iter().max().unwrap_or(0)
    }

    /// Moves the bytes that have been kept into empty buffers. See [`RunState::take_so_far`].
    pub(crate) fn take_so_far(&mut self, buffers: &mut [Vec<u8>; 2]) {
        self.resume();
        if let Some(run) = &mut self.run {
            for (source, buffer) in [Source::Stdout, Source::Stderr].into_iter().zip(buffers) {
                run.take_so_far(source, buffer);
            }
        }
        self.suspend();
    }

    fn keep_nothing(&mut self) {
        self.resume();
        if let Some(run) = &mut self.run {
            run.keep_nothing();
        }
        self.suspend();
    }

    /// Returns the error of a second request for the result: the children are gone.
    pub(crate) fn already_reported(&self) -> Error {
        let message = "its result has already been returned";
        Error::cannot(&self.program, "wait for", io::Error::other(message))
    }
}
