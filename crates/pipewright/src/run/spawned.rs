//! The run of children that the caller owns: waited for, stopped and read when the caller asks.

#[cfg(feature = "tokio")]
mod task;

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::process::child::ChildHandle;

use super::active::ActiveRun;
use super::background::Enforcement;
use super::foreground::ForegroundJob;
use super::info::RunInfo;
use super::options::RunSettings;
use super::process::{Children, OwnedProcess, Processes};
use super::started::{Collect, OutputEnd, ParentEnds, streams};
use super::state::RunState;
use super::stop_targets::StopTargets;
use super::suspended::{StopRequest, SuspendedRun};
use super::tee::TeeTarget;
use super::terminal::HeldTerminal;
use crate::error::{Error, OperationError};
use crate::input::Input;
use crate::trace::Trace;

/// The common part of a [`Child`](crate::Child) and a [`PipelineChild`](crate::PipelineChild).
#[derive(Debug)]
pub(crate) struct SpawnedRun<P: Owner> {
    /// Dropped before the processes, because it has handles of them.
    enforcement: Option<Enforcement>,
    processes: Arc<P>,
    program: OsString,
    started: Instant,
    foreground: Option<Arc<dyn ForegroundJob>>,
    /// Input that came with the command.
    input: Input,
    suspended: Arc<SuspendedRun>,
    options: RunSettings,
    /// The targets that get a copy of the streams that this crate reads.
    tees: [Option<TeeTarget>; 2],
    stderr_merged: bool,
}

/// The parent's ends that the caller holds, stdin first.
pub(crate) type CallerEnds = (Option<PipeWriter>, [Option<PipeReader>; 2]);

/// The owner of one process or of several.
pub(crate) trait Owner: Children + Default + 'static {
    fn trace(&self) -> Trace;
    fn into_processes(self) -> Processes;
}

impl Owner for OwnedProcess {
    fn trace(&self) -> Trace {
        OwnedProcess::trace(self)
    }

    fn into_processes(self) -> Processes {
        Processes::of(self)
    }
}

impl Owner for Processes {
    fn trace(&self) -> Trace {
        Processes::trace(self)
    }

    fn into_processes(self) -> Processes {
        self
    }
}

impl<P: Owner> SpawnedRun<P> {
    /// Creates the run of children that have just been started. Also returns the pipe ends for the caller.
    pub(crate) fn new(
        processes: P,
        ends: ParentEnds,
        program: OsString,
        started: Instant,
        foreground: Option<Arc<dyn ForegroundJob>>,
        options: &RunSettings,
    ) -> (SpawnedRun<P>, CallerEnds) {
        let ParentEnds { stdin, feed, stdout, stderr, stderr_merged, .. } = ends;
        let input = Input::begin(feed, processes.handles());
        let (outputs, tees) = OutputEnd::split([stdout, stderr]);
        let mut run = SpawnedRun {
            enforcement: None,
            processes: Arc::new(processes),
            program,
            started,
            foreground,
            input,
            suspended: Arc::default(),
            options: options.clone(),
            tees,
            stderr_merged,
        };
        run.enforcement = options.enforce(&run.processes, &run.suspended);
        if run.enforcement.is_some() {
            let state = RunState::new(&options.rules, run.info(), None, [None, None]);
            run.suspended.put(Box::new(state));
        }
        (run, (stdin, outputs))
    }

    pub(crate) fn processes(&self) -> &P {
        &self.processes
    }

    pub(crate) fn options(&self) -> &RunSettings {
        &self.options
    }

    pub(crate) fn program(&self) -> &OsString {
        &self.program
    }

    /// Returns the stop signal and the grace of the options.
    pub(crate) fn stop_request(&self) -> StopRequest {
        StopRequest::by(&self.options.rules)
    }

    /// Drops everything but the processes and their name.
    pub(crate) fn into_parts(self) -> (Arc<P>, OsString) {
        let SpawnedRun { enforcement, processes, program, .. } = self;
        drop(enforcement);
        (processes, program)
    }

    /// Kills the children and the descendants that a kill reaches.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        let killed = StopTargets::default().kill(self.children());
        killed.map_err(|error| self.cannot("kill", error))
    }

    /// Waits until the children have ended, but no longer than `until`. Returns false if they still run.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<bool, Error> {
        let rules = &self.options.rules;
        let waited = self.suspended.wait(|| self.new_state(), self.children(), rules, until);
        waited.map_err(|failed| self.failed(failed))
    }

    /// Stops the children and waits until they have ended.
    pub(crate) fn stop(&self, request: StopRequest) -> Result<(), Error> {
        let rules = &self.options.rules;
        let stopped = self.suspended.stop(|| self.new_state(), self.children(), rules, request);
        stopped.map_err(|failed| self.failed(failed))
    }

    /// Takes the terminal back from children that have ended.
    pub(crate) fn ended(&self) {
        if let Some(job) = &self.foreground {
            job.ended();
        }
    }

    /// Returns true if a wait has more to do than waiting for the children to end.
    pub(crate) fn needs_a_run(&self) -> bool {
        self.options.rules.can_stop()
            || self.foreground.is_some()
            || self.input.has_feed()
            || self.suspended.has_run()
    }

    /// Closes the piped stdin that the caller has not taken.
    pub(crate) fn close_stdin(&self, stdin: Option<&PipeWriter>) -> Result<(), Error> {
        match stdin {
            Some(stdin) => stdin.close().map_err(|error| self.cannot("close the input of", error)),
            None => Ok(()),
        }
    }

    /// Stops feeding children that have ended.
    pub(crate) fn stop_input(&self) -> Result<(), Error> {
        self.input.stop().map(drop).map_err(|failed| self.failed(failed))
    }

    /// Returns the run that reads these streams. This ends the enforcement in the background, unless that run starts it
    /// again.
    pub(crate) fn into_run(
        mut self,
        (stdin, outputs): CallerEnds,
        terminal: HeldTerminal,
        collect: Collect,
    ) -> ActiveRun {
        self.enforcement = None;
        drop(stdin);
        let [stdout_tee, stderr_tee] = mem::take(&mut self.tees);
        let [stdout, stderr] = outputs;
        let ends = [
            stdout.map(|pipe| OutputEnd::new(pipe, stdout_tee)),
            stderr.map(|pipe| OutputEnd::new(pipe, stderr_tee)),
        ];
        let streams = streams(ends, collect, self.options.limit);
        let feed = self.input.take_feed();
        let mut state = match self.suspended.take_out() {
            Some(state) => state.with_streams(feed, streams),
            None => RunState::new(&self.options.rules, self.info(), feed, streams),
        };
        state.hold(terminal);
        let SpawnedRun { processes, program, options, .. } = self;
        // The enforcement was the only other owner.
        let processes = Arc::into_inner(processes).unwrap_or_default().into_processes();
        ActiveRun { processes, state, program, options, decide: None }
    }

    pub(crate) fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::cannot(&self.program, doing, error)
    }

    fn failed(&self, (doing, error): OperationError) -> Error {
        self.cannot(doing, error)
    }

    fn children(&self) -> &[ChildHandle] {
        self.processes.handles()
    }

    /// Returns a run that reads nothing.
    fn new_state(&self) -> RunState {
        let feed = self.input.take_feed();
        RunState::new(&self.options.rules, self.info(), feed, [None, None])
    }

    fn info(&self) -> RunInfo {
        RunInfo {
            program: self.program.clone(),
            started: self.started,
            made_in: self.processes.made_in(),
            background_feed: self.input.background(),
            foreground: self.foreground.clone(),
            stderr_merged: self.stderr_merged,
            terminal: HeldTerminal::default(),
            trace: self.processes.trace(),
        }
    }
}
