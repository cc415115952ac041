//! The run of children that the caller owns: waited for, stopped and read when the caller asks.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::ChildHandle;

use super::background::{Enforcement, StatePlace};
use super::foreground::ForegroundJob;
use super::options::RunSettings;
use super::process::Children;
use super::run::Run;
use super::started::{Collect, HeldTerminal, OutputEnd, ParentEnds, RunInfo, streams};
use super::state::RunState;
use super::stop_targets::StopTargets;
use super::tee::TeeTarget;
use crate::error::{Error, OperationError};
use crate::input::Input;
use crate::rules::Rules;
#[cfg(feature = "tokio")]
use crate::runtime::check_runtime_to_wait;

/// The common part of a [`Child`](crate::Child) and a [`PipelineChild`](crate::PipelineChild).
#[derive(Debug)]
pub(crate) struct SpawnedRun<P> {
    /// Dropped before the processes, because it has handles of them.
    enforcement: Option<Enforcement>,
    processes: Arc<P>,
    program: OsString,
    started: Instant,
    foreground: Option<Arc<dyn ForegroundJob>>,
    /// Input that came with the command.
    input: Input,
    place: Arc<StatePlace>,
    options: RunSettings,
    /// The targets that get a copy of the streams that this crate reads.
    tees: [Option<TeeTarget>; 2],
    stderr_merged: bool,
}

/// The parent's ends that the caller holds, stdin first.
pub(crate) type CallerEnds = (Option<PipeWriter>, [Option<PipeReader>; 2]);

impl<P: Children + 'static> SpawnedRun<P> {
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
            place: Arc::default(),
            options: options.clone(),
            tees,
            stderr_merged,
        };
        if options.is_enforced() {
            run.enforcement = options.enforce(Arc::clone(&run.processes) as _, &run.place);
            let state = RunState::new(&options.rules, run.info(), None, [None, None]);
            run.place.put(Box::new(state));
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

    /// Waits until the children have ended, but no longer than `until`. Returns false if they still run. An error does not
    /// affect them.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<bool, Error> {
        let waited = self.resume().run_to_end(self.children(), &self.options.rules, until);
        waited.map_err(|failed| self.failed(failed))
    }

    /// Stops the children and waits until they have ended.
    pub(crate) fn stop(&self, request: StopRequest) -> Result<(), Error> {
        match self.begin_stop(request)? {
            Some((wait, rules)) => {
                let waited = wait.run_to_end(self.children(), &rules, None);
                waited.map(drop).map_err(|failed| self.failed(failed))
            }
            None => Ok(()),
        }
    }

    /// Requests the stop. Returns the wait for the end and its rules, or `None` if the children have ended.
    fn begin_stop(&self, request: StopRequest) -> Result<Option<(ActiveWait<'_>, Rules)>, Error> {
        let children = self.children();
        if have_ended(children).map_err(|error| self.cannot("wait for", error))? {
            return Ok(None);
        }
        let rules = request.rules(&self.options.rules);
        let mut wait = self.resume();
        if let Some(state) = &mut wait.state {
            let stopped = state.stop_within(request.grace, children, &rules);
            stopped.map_err(|failed| self.failed(failed))?;
        }
        Ok(Some((wait, rules)))
    }

    /// Takes the state of the last wait, or creates one if there is none or another thread is waiting with it.
    fn resume(&self) -> ActiveWait<'_> {
        let state = self.place.take_out().unwrap_or_else(|| Box::new(self.new_state()));
        ActiveWait { place: &self.place, state: Some(state) }
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
            || self.place.has_state()
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
    ) -> Run {
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
        let mut state = match self.place.take_out() {
            Some(state) => state.with_streams(feed, streams),
            None => Box::new(RunState::new(&self.options.rules, self.info(), feed, streams)),
        };
        state.hold(terminal);
        let SpawnedRun { processes, program, options, .. } = self;
        Run::resuming(state, processes, program, options)
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

/// A run during a wait.
///
/// # Drop
/// Suspends the run again. The next wait continues it.
#[derive(Debug)]
struct ActiveWait<'a> {
    place: &'a StatePlace,
    /// `None` after the end.
    state: Option<Box<RunState>>,
}

/// The signal and the grace of a stop: see [`SpawnedRun::stop`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequest {
    pub(crate) signal: Signal,
    pub(crate) grace: Duration,
}

impl StopRequest {
    /// Returns the signal and the grace of the command.
    pub(crate) fn by(rules: &Rules) -> StopRequest {
        StopRequest { signal: rules.stop_signal, grace: rules.kill_grace }
    }

    /// Returns the command's rules with this signal, and without a cancel token.
    fn rules(self, rules: &Rules) -> Rules {
        Rules { stop_signal: self.signal, cancel: None, ..rules.clone() }
    }
}

impl ActiveWait<'_> {
    fn run_to_end(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(state) = &mut self.state else { return Ok(true) };
        while state.step_until(until, children, rules)? {
            if state.is_late(until) {
                return Ok(false);
            }
        }
        self.finish(children)
    }

    fn finish(mut self, children: &[ChildHandle]) -> Result<bool, OperationError> {
        match self.state.take() {
            Some(state) => state.finish_wait(children).map(|()| true),
            None => Ok(true),
        }
    }
}

impl Drop for ActiveWait<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.place.put(state);
        }
    }
}

/// Returns true if all children have ended, so that there is nothing to stop.
fn have_ended(children: &[ChildHandle]) -> io::Result<bool> {
    for child in children {
        if child.try_wait()?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits and stops for tasks.
#[cfg(feature = "tokio")]
impl<P: Children + 'static> SpawnedRun<P> {
    /// Waits as [`wait`](Self::wait) does, without blocking the thread.
    pub(crate) async fn wait_async(&self, until: Option<Instant>) -> Result<bool, Error> {
        let rules = &self.options.rules;
        let waited = self.resume().run_to_end_async(self.children(), rules, until).await;
        waited.map_err(|failed| self.failed(failed))
    }

    /// Stops as [`stop`](Self::stop) does, without blocking the thread. Does nothing but fail if no runtime drives the
    /// call.
    pub(crate) async fn stop_async(&self, request: StopRequest) -> Result<(), Error> {
        check_runtime_to_wait(&self.program)?;
        match self.begin_stop(request)? {
            Some((wait, rules)) => {
                let waited = wait.run_to_end_async(self.children(), &rules, None).await;
                waited.map(drop).map_err(|failed| self.failed(failed))
            }
            None => Ok(()),
        }
    }
}

#[cfg(feature = "tokio")]
impl ActiveWait<'_> {
    async fn run_to_end_async(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(state) = &mut self.state else { return Ok(true) };
        match state.run_until(until, children, rules).await? {
            true => self.finish(children),
            false => Ok(false),
        }
    }
}
