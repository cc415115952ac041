//! A run that goes on only while somebody asks for what it brings.

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
use crate::error::{Error, Failed};
use crate::outcome::Source;
use crate::output::{Ending, Output};
use crate::rules::Rules;

/// A started child, whose streams are handed out between two steps.
///
/// Nothing happens between the calls: a child that writes faster than is asked for waits, and what
/// time has made necessary is done by the next step.
///
/// # Drop
/// Closes the streams; the child goes to the reaper.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Before the processes: it has handles on them.
    enforcement: Option<Enforcement>,
    /// The run, between two calls, if its rules are enforced in the background.
    shared: Option<Arc<SuspendedRun>>,
    processes: Arc<Processes>,
    program: OsString,
    rules: Rules,
    /// The rule of a pipeline by which the status of the whole is chosen.
    decide: Option<Decide>,
    /// Our end of a piped stdin, until somebody takes it or waits.
    stdin: Option<PipeWriter>,
    /// Taken by the end.
    run: Option<Box<RunState>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Everything is read, and the child has ended.
    Ended,
    /// An error has been reported, and there is no child.
    Failed,
}

impl ActiveRun {
    /// Returns the same run, to be taken step by step.
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

    /// Takes the run from where its rules are enforced meanwhile.
    fn resume(&mut self) {
        // It may be here already: one that has ended is not put back.
        if let Some(run) = self.shared.as_ref().and_then(|suspended| suspended.take_out()) {
            self.run = Some(run);
        }
    }

    /// Leaves the run where its rules are enforced.
    fn suspend(&mut self) {
        if let (Some(suspended), Some(run)) =
            (&self.shared, self.run.take_if(|_| self.shared.is_some()))
        {
            suspended.put(run);
        }
    }

    /// The same with our end of the child's stdin.
    pub(crate) fn with_stdin(self, stdin: Option<PipeWriter>) -> Steps {
        Steps { stdin, ..self }
    }

    /// Our end of the child's stdin, where that is piped and nobody has waited or taken it yet.
    pub(crate) fn take_stdin(&mut self) -> Option<PipeWriter> {
        self.stdin.take()
    }

    /// The process id; of several, that of the first.
    pub(crate) fn pid(&self) -> u32 {
        self.processes.first().map_or(0, ChildHandle::pid)
    }

    /// The children.
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

    /// Takes what has come of a stream; once more at its end, whatever is left then.
    pub(crate) fn take(&mut self, source: Source) -> Option<Chunk> {
        if self.has_failed() {
            return None;
        }
        self.resume();
        let taken = self.run.as_mut().and_then(|run| run.take(source));
        self.suspend();
        taken
    }

    /// Gives a buffer back, with what is to stand before the next chunk of the stream.
    pub(crate) fn give_back(&mut self, source: Source, buffer: Vec<u8>) {
        self.resume();
        if let Some(run) = &mut self.run {
            run.give_back(source, buffer);
        }
        self.suspend();
    }

    /// Waits once. `false`: there is nothing left to wait for.
    pub(crate) fn step(&mut self) -> Result<bool, Error> {
        self.step_until(None)
    }

    /// The same, and waits no longer than until then.
    pub(crate) fn step_until(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        run_async_for_test!(self.step_async(until));
        self.resume();
        let (State::Running, Some(run)) = (self.state, &mut self.run) else { return Ok(false) };
        // Nobody will write to it, so the child is to find the end of its input.
        self.stdin = None;
        let stepped = run.step_until(until, &self.processes, &self.rules);
        if stepped.is_err() {
            run.abandon(&self.processes);
        }
        self.suspend();
        self.note(stepped)
    }

    fn note(&mut self, stepped: Result<bool, Failed>) -> Result<bool, Error> {
        match stepped {
            Ok(true) => {}
            Ok(false) => self.state = State::Ended,
            Err(_) => self.state = State::Failed,
        }
        stepped.map_err(|failed| error_of(&self.program, failed))
    }

    /// Returns how the child ended: once, when there is nothing left to wait for and nothing has failed.
    pub(crate) fn ending(&mut self) -> Option<Result<Ending, Error>> {
        self.output().map(|output| output.map(Output::without_streams))
    }

    /// As [`ending`](Self::ending), with what was kept of the streams.
    pub(crate) fn output(&mut self) -> Option<Result<Output, Error>> {
        if self.state != State::Ended {
            return None;
        }
        self.resume();
        // The time is over.
        self.enforcement = None;
        let ended = self.run.take()?.finish(&self.processes);
        let ended = ended.and_then(|whole| {
            decided(self.decide, &self.processes, whole).map_err(|source| ("wait for", source))
        });
        Some(ended.map_err(|failed| error_of(&self.program, failed)))
    }

    /// Reads the rest without keeping it, waits for the child, and tells how it ended.
    pub(crate) fn finish(mut self) -> Result<Ending, Error> {
        self.keep_nothing();
        while self.step()? {}
        self.ending().unwrap_or_else(|| Err(self.already_reported()))
    }

    fn keep_nothing(&mut self) {
        self.resume();
        if let Some(run) = &mut self.run {
            run.keep_nothing();
        }
        self.suspend();
    }

    /// A second answer would not be the truth: the child is gone.
    fn already_reported(&self) -> Error {
        let words = "how its run ended has been told already";
        Error::cannot(&self.program, "wait for", io::Error::other(words))
    }
}
