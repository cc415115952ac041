//! One owner of a run: its processes, their state, the settings, and the rule for the result. Below it what a start
//! gives it: the owner of a child, which leaves no zombie and, if the tree is held, no process of the tree, and this
//! process's ends of its streams.
//!
//! [`Run::step`] is the only way forward for a thread, [`Run::poll`] for a task (`task.rs`). The verbs that run a
//! command to its end loop over them, those that hand out chunks call them once per chunk, and a set of runs waits for
//! all of its members at once between [`RunState::before`] and [`RunState::after`].

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use std::{fmt, io, mem, slice};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot, WaitDescriptor};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::pty::{ChildTerminal, Pty};
use pipewright_os::process::status::{Ended, ExitStatus};

use super::background::{Enforcement, StatePlace};
use super::options::{Limit, OnExceed, Rules, RunSettings};
use super::process::{ForegroundJob, RunHandle};
use super::state::RunState;
use super::stop::StopTargets;
use super::stream::{Chunk, Sink};
use super::tee::{PanicPayload, TeeTarget};
use crate::error::{Error, OperationError};
use crate::input::{FedInput, Feed};
use crate::outcome::{Outcome, Source};
use crate::output::{Ending, Output, TAIL_BYTES, check_tee};
use crate::reaper;
use crate::trace::Trace;

/// A run whose children have been started.
///
/// Nothing happens between two calls: a child that writes too fast blocks, and the next step carries out a stop that is
/// due, unless the rules are [enforced in the background](Run::enforced).
///
/// # Drop
/// Closes the streams. Children that still run go to the reaper, or are killed if `kill_on_drop` is set.
#[derive(Debug)]
pub(crate) struct Run {
    /// Dropped before the processes: the enforcement in the background has handles of them.
    state: HeldState,
    processes: Arc<dyn Children>,
    program: OsString,
    settings: RunSettings,
    /// The pipeline's rule for the status of the whole.
    decide: Option<Decide>,
    /// This process's end of a piped stdin, until the caller takes it or waits.
    stdin: Option<PipeWriter>,
    pub(super) phase: Phase,
}

/// Returns the result of a whole pipeline from the ends of its children.
pub(crate) type Decide = fn(&[ChildHandle], Output) -> io::Result<Output>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// Everything has been read, and all children have ended.
    Ended,
    /// An error has been reported, and no child is left.
    Failed,
}

/// A run during a call: its state, and what every step needs.
#[derive(Debug)]
pub(crate) struct Resumed<'a> {
    pub(crate) state: &'a mut RunState,
    pub(crate) children: &'a [ChildHandle],
    pub(crate) rules: &'a Rules,
}

impl Run {
    /// Creates the run of a child that has just been started.
    pub(crate) fn of_child(
        started: Started,
        program: &OsStr,
        settings: &RunSettings,
        collect: Collect,
    ) -> Run {
        let Started { process, mut ends, at, foreground } = started;
        let terminal = ends.terminal.take();
        let has_terminal = terminal.is_some();
        let info = RunInfo {
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
            trace: Children::trace(&process),
        };
        let collect = match collect {
            Collect::StderrTail if has_terminal => Collect::Tails,
            collect => collect,
        };
        Run::new(Arc::new(process), program.to_owned(), info, ends, settings, collect)
    }

    /// Creates the run of started children. Closes a stdin that the caller has not taken, so that the first child finds
    /// the end of its input.
    pub(crate) fn new(
        processes: Arc<dyn Children>,
        program: OsString,
        info: RunInfo,
        ends: ParentEnds,
        settings: &RunSettings,
        collect: Collect,
    ) -> Run {
        let ParentEnds { stdin, feed, stdout, stderr, .. } = ends;
        drop(stdin);
        let streams = streams([stdout, stderr], collect, settings);
        let state = Box::new(RunState::new(&settings.rules, info, feed, streams));
        Run::resuming(state, processes, program, settings.clone())
    }

    /// Creates a run that goes on from this state.
    pub(super) fn resuming(
        state: Box<RunState>,
        processes: Arc<dyn Children>,
        program: OsString,
        settings: RunSettings,
    ) -> Run {
        let (state, phase) = (HeldState::new(state), Phase::Running);
        Run { state, processes, program, settings, decide: None, stdin: None, phase }
    }

    /// Sets the rule for the status of several children.
    pub(crate) fn decided_by(self, decide: Decide) -> Run {
        Run { decide: Some(decide), ..self }
    }

    /// Adds this process's end of the child's stdin.
    pub(crate) fn with_stdin(self, stdin: Option<PipeWriter>) -> Run {
        Run { stdin, ..self }
    }

    /// Enforces the rules in the background between two calls, if the settings say so. A verb that runs to the end
    /// without returning to the caller does not need it.
    pub(crate) fn enforced(mut self) -> Run {
        self.state.share(&self.settings, &self.processes);
        self
    }

    /// Runs all children to their ends on the calling thread. After an error no child is left.
    pub(crate) fn finish(&mut self) -> Result<Output, Error> {
        while self.step_here(None)? {}
        let program = mem::take(&mut self.program);
        match self.conclude() {
            Some(Ok(output)) => Ok(Output { program, ..output }),
            Some(Err((doing, source))) => Err(Error::cannot(&program, doing, source)),
            None => {
                self.program = program;
                Err(self.already_reported())
            }
        }
    }

    /// Reads and discards the rest, waits for the children, and returns the result without streams.
    pub(crate) fn finish_ending(mut self) -> Result<Ending, Error> {
        self.keep_nothing();
        while self.step(None)? {}
        self.ending().unwrap_or_else(|| Err(self.already_reported()))
    }

    /// Waits once, but no longer than `until`. Returns false if there was nothing left to wait for. After an error no
    /// child is left.
    pub(crate) fn step(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        run_async_for_test!(self.step_async(until));
        self.step_here(until)
    }

    fn step_here(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        if self.phase != Phase::Running {
            return Ok(false);
        }
        // The caller has not taken it, so the child must find the end of its input.
        self.stdin = None;
        let stepped = self.with(|Resumed { state, children, rules }| {
            let stepped = state.step_until(until, children, rules);
            if stepped.is_err() {
                state.abandon(children);
            }
            stepped
        });
        self.note(stepped.unwrap_or(Ok(false)))
    }

    pub(super) fn note(&mut self, stepped: Result<bool, OperationError>) -> Result<bool, Error> {
        match stepped {
            Ok(true) => {}
            Ok(false) => self.phase = Phase::Ended,
            Err(_) => self.phase = Phase::Failed,
        }
        stepped.map_err(|(doing, source)| Error::cannot(&self.program, doing, source))
    }

    /// Calls `act` with the state, which is taken back from the enforcement in the background meanwhile. `None` after
    /// the end.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(Resumed<'_>) -> T) -> Option<T> {
        let done = self.resume().map(act);
        self.suspend();
        done
    }

    /// Takes the state back from the enforcement in the background. [`suspend`](Self::suspend) comes after it.
    pub(crate) fn resume(&mut self) -> Option<Resumed<'_>> {
        let Run { state, processes, settings, .. } = self;
        let (state, children, rules) = (state.resume()?, processes.handles(), &settings.rules);
        Some(Resumed { state, children, rules })
    }

    /// Leaves the state to the enforcement in the background, if there is one.
    pub(crate) fn suspend(&mut self) {
        self.state.suspend();
    }

    /// Ends the run, and returns the result without the program's name. `None` unless everything has ended, and for the
    /// second call.
    fn conclude(&mut self) -> Option<Result<Output, OperationError>> {
        if self.phase != Phase::Ended {
            return None;
        }
        let state = self.state.end()?;
        let children = self.processes.handles();
        let whole = state.finish(children, &self.program);
        Some(match self.decide {
            Some(decide) => whole
                .and_then(|whole| decide(children, whole).map_err(|source| ("wait for", source))),
            None => whole,
        })
    }

    /// Returns the result with the kept bytes of the streams, once, after a run that has not failed.
    pub(crate) fn output(&mut self) -> Option<Result<Output, Error>> {
        Some(match self.conclude()? {
            Ok(output) => Ok(Output { program: self.program.clone(), ..output }),
            Err((doing, source)) => Err(Error::cannot(&self.program, doing, source)),
        })
    }

    /// Returns the result as [`output`](Self::output) does, without streams.
    pub(crate) fn ending(&mut self) -> Option<Result<Ending, Error>> {
        self.output().map(|output| output.map(Output::without_streams))
    }

    /// Ends the run of a set with its output, or with the error of its last step.
    pub(crate) fn end(&mut self, stepped: Result<bool, OperationError>) -> Result<Output, Error> {
        if stepped.is_err() {
            self.with(|Resumed { state, children, .. }| state.abandon(children));
        }
        self.note(stepped)?;
        self.output().unwrap_or_else(|| Err(self.already_reported()))
    }

    /// Returns the error of a second request for the result: the children are gone.
    pub(crate) fn already_reported(&self) -> Error {
        let message = "its result has already been returned";
        Error::cannot(&self.program, "wait for", io::Error::other(message))
    }

    /// Stops the children, as a cancel does.
    pub(crate) fn stop(&mut self) {
        let stopped = self.with(|Resumed { state, children, rules }| {
            state.stop(Outcome::Cancelled, children, rules, Instant::now())
        });
        if stopped.is_some_and(|stopped| stopped.is_err()) {
            // A child has changed its user and cannot be stopped. The others are killed.
            self.kill();
        }
    }

    /// Kills the children and the descendants that a kill reaches, unless the run has ended. Does not wait for them,
    /// which would block a task. Does nothing in a fork of the process that has started them.
    pub(super) fn kill(&mut self) {
        if self.processes.made_in().is_current() && self.state.is_some() {
            // Ignored: a child that has changed its user cannot be killed.
            let _ = StopTargets::default().kill(self.children());
        }
    }

    /// Takes the panic of a closure that gets a copy of a stream.
    pub(crate) fn take_panic(&mut self) -> Option<PanicPayload> {
        self.with(|run| run.state.take_panic()).flatten()
    }

    /// Kills all processes of a run that has not ended, and waits for as long as a kill may take.
    pub(crate) fn abandon(&mut self) {
        self.with(|Resumed { state, children, .. }| state.abandon(children));
    }

    /// Takes this process's end of a piped stdin, if nothing has taken it or waited yet.
    pub(crate) fn take_stdin(&mut self) -> Option<PipeWriter> {
        self.stdin.take()
    }

    /// Returns the process id; with several children, that of the first.
    pub(crate) fn pid(&self) -> u32 {
        self.children().first().map_or(0, ChildHandle::pid)
    }

    /// Returns the children.
    pub(crate) fn children(&self) -> &[ChildHandle] {
        self.processes.handles()
    }

    /// Returns a handle to the processes, for other threads.
    pub(crate) fn handle(&self) -> RunHandle {
        RunHandle::new(Arc::clone(&self.processes))
    }

    pub(crate) fn program(&self) -> &OsString {
        &self.program
    }

    pub(crate) fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// Returns true once all children are known to have ended: often there is nothing left to wait for then.
    pub(crate) fn have_children_ended(&mut self) -> bool {
        self.with(|run| run.state.have_children_ended()).unwrap_or(false)
    }

    /// Takes the new bytes of a stream, and the rest once at its end.
    pub(crate) fn take(&mut self, source: Source) -> Option<Chunk> {
        if self.phase == Phase::Failed {
            return None;
        }
        self.with(|run| run.state.take(source)).flatten()
    }

    /// Gives a buffer back. Its bytes come before the next chunk of the stream.
    pub(crate) fn give_back(&mut self, source: Source, buffer: Vec<u8>) {
        self.with(|run| run.state.give_back(source, buffer));
    }

    pub(super) fn keep_nothing(&mut self) {
        self.with(|run| run.state.keep_nothing());
    }

    /// Returns a copy of the bytes of both streams that have been kept.
    pub(crate) fn so_far(&mut self) -> [Vec<u8>; 2] {
        let copies = |run: Resumed<'_>| {
            [Source::Stdout, Source::Stderr].map(|source| run.state.so_far(source).into_owned())
        };
        self.with(copies).unwrap_or_default()
    }

    /// Returns the number of bytes that have been kept of the longer stream.
    pub(crate) fn bytes_so_far(&mut self) -> usize {
        let lengths = |run: Resumed<'_>| {
            [Source::Stdout, Source::Stderr].map(|source| run.state.bytes_so_far(source))
        };
        self.with(lengths).unwrap_or_default().into_iter().max().unwrap_or(0)
    }

    /// Moves the bytes that have been kept into empty buffers. See [`RunState::take_so_far`].
    pub(crate) fn take_so_far(&mut self, buffers: &mut [Vec<u8>; 2]) {
        self.with(|run| {
            for (source, buffer) in [Source::Stdout, Source::Stderr].into_iter().zip(buffers) {
                run.state.take_so_far(source, buffer);
            }
        });
    }

    /// Returns the descriptor that becomes readable when the next step without a wait has something to do.
    pub(crate) fn update_descriptor(
        &mut self,
        descriptor: &mut RunDescriptor,
    ) -> Result<i32, Error> {
        self.set_descriptor(descriptor, |made, slots, until| made.update(slots, until))
            .map(|(number, ())| number)
    }

    /// Returns the descriptor without a timer, and the time at which the next step is due in any case.
    pub(crate) fn register_descriptor(
        &mut self,
        descriptor: &mut RunDescriptor,
    ) -> Result<(i32, Option<Instant>), Error> {
        self.set_descriptor(descriptor, |made, slots, until| made.register(slots, until))
    }

    fn set_descriptor<T>(
        &mut self,
        descriptor: &mut RunDescriptor,
        set: impl Fn(&mut WaitDescriptor, &[Slot<'_>], Option<Instant>) -> io::Result<T>,
    ) -> Result<(i32, T), Error> {
        let cannot = |program: &OsStr, error| Error::cannot(program, "wait for", error);
        let made = match &mut descriptor.0 {
            Some(made) => made,
            none => none.insert(WaitDescriptor::new().map_err(|e| cannot(&self.program, e))?),
        };
        let mut updated = None;
        if self.phase == Phase::Running {
            updated = self
                .with(|Resumed { state, children, rules }| match state.before(children, rules) {
                    Ok(Some(mut wait)) => {
                        let updated = set(made, &wait.slots, wait.until);
                        state.take_back(&mut wait.slots);
                        Some(updated)
                    }
                    // The next step reports the end, or the error.
                    Ok(None) | Err(_) => None,
                })
                .flatten();
        }
        let updated = updated.unwrap_or_else(|| set(made, &[], Some(Instant::now())));
        let set = updated.map_err(|error| cannot(&self.program, error))?;
        Ok((made.number(), set))
    }
}

/// The state of a run that has one caller: held here, or shared with the background thread between two calls.
#[derive(Debug)]
struct HeldState {
    /// `None` after the end, and while it is in the place. Here too after a panic in a call.
    here: Option<Box<RunState>>,
    shared: Option<(Enforcement, Arc<StatePlace>)>,
}

impl HeldState {
    fn new(state: Box<RunState>) -> HeldState {
        HeldState { here: Some(state), shared: None }
    }

    /// Shares the state with the background thread, if the settings say so.
    fn share(&mut self, settings: &RunSettings, children: &Arc<dyn Children>) {
        if settings.is_enforced() {
            let place = Arc::default();
            let enforcement = settings.enforce(Arc::clone(children), &place);
            self.shared = enforcement.map(|enforcement| (enforcement, place));
            self.suspend();
        }
    }

    /// Takes the state back from the background thread. `None` after the end.
    fn resume(&mut self) -> Option<&mut RunState> {
        if let Some(state) = self.shared.as_ref().and_then(|(_, place)| place.take_out()) {
            self.here = Some(state);
        }
        self.here.as_deref_mut()
    }

    /// Leaves the state to the background thread, if it is shared.
    fn suspend(&mut self) {
        if let Some((_, place)) = &self.shared {
            if let Some(state) = self.here.take() {
                place.put(state);
            }
        }
    }

    /// Returns true before the end.
    fn is_some(&self) -> bool {
        self.here.is_some() || self.shared.as_ref().is_some_and(|(_, place)| place.has_state())
    }

    /// Takes the state for good. The rules are not enforced any more.
    fn end(&mut self) -> Option<Box<RunState>> {
        self.resume();
        self.shared = None;
        self.here.take()
    }
}

/// The descriptor through which an event loop waits for the next step, made for the first wait.
#[derive(Debug, Default)]
pub(crate) struct RunDescriptor(Option<WaitDescriptor>);

impl From<WaitDescriptor> for RunDescriptor {
    fn from(made: WaitDescriptor) -> RunDescriptor {
        RunDescriptor(Some(made))
    }
}

/// A started child.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: OwnedProcess,
    pub(crate) ends: ParentEnds,
    pub(crate) at: Instant,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
}

/// A child that has just been started, and is not owned yet.
///
/// A [`Started`] leaves it to the reaper if it is dropped, for which it needs a thread. A caller that waits for its end
/// does not.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) child: ChildHandle,
    pub(crate) ends: ParentEnds,
    pub(crate) at: Instant,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
    pub(crate) trace: Trace,
    pub(crate) on_drop: Option<fn(&ChildHandle)>,
    pub(crate) holds_tree: bool,
}

impl Launched {
    /// Waits for a child that needs nothing else.
    pub(crate) fn wait(self, program: &OsStr, settings: &RunSettings) -> Result<ExitStatus, Error> {
        debug_assert!(!self.needs_a_run(settings), "a setter has not called `see_to_end`");
        let Launched { mut child, trace, ends, .. } = self;
        drop(ends);
        let ended = child.wait_exclusive().map_err(|e| Error::cannot(program, "wait for", e))?;
        trace.ended(ended.status);
        Ok(ended.status)
    }

    /// Returns true if there is more to do than to wait for its end.
    fn needs_a_run(&self, settings: &RunSettings) -> bool {
        let has_rules = settings.rules.can_stop() || self.holds_tree;
        self.ends.pass_data() || self.foreground.is_some() || has_rules
    }
}

impl From<Launched> for Started {
    fn from(launched: Launched) -> Started {
        let Launched { child, ends, at, foreground, trace, on_drop, .. } = launched;
        Started { process: OwnedProcess::new(child, on_drop, trace), ends, at, foreground }
    }
}

/// The type of [`FINISH_STATUS`](super::on_demand::FINISH_STATUS).
pub(crate) type FinishStatus = fn(Launched, &OsStr, &RunSettings) -> Result<ExitStatus, Error>;

/// Runs a child to its end, and returns its status.
pub(super) fn finish_status(
    launched: Launched,
    program: &OsStr,
    settings: &RunSettings,
) -> Result<ExitStatus, Error> {
    let needs_a_run = launched.needs_a_run(settings);
    let started = Started::from(launched);
    if !needs_a_run {
        let ended = started.wait().map_err(|e| Error::cannot(program, "wait for", e))?;
        return Ok(ended.status);
    }
    let output = Run::of_child(started, program, settings, Collect::Nothing).finish()?;
    check_tee(program, &output)?;
    Ok(output.status)
}

/// The parent's ends of the streams of a child.
#[derive(Debug, Default)]
pub(crate) struct ParentEnds {
    /// For the caller to write to.
    pub(crate) stdin: Option<PipeWriter>,
    /// Input that the run writes.
    pub(crate) feed: Option<Feed>,
    pub(crate) stdout: Option<OutputEnd>,
    pub(crate) stderr: Option<OutputEnd>,
    /// The terminal of the child.
    pub(crate) terminal: Option<TerminalEnds>,
    /// True if the last child's stderr goes to its stdout.
    pub(crate) stderr_merged: bool,
}

impl Started {
    /// Waits for a child that needs nothing else. Closes its stdin first: a child that reads to the end of its input
    /// must find that end.
    pub(crate) fn wait(self) -> io::Result<Ended> {
        let Started { mut process, ends, .. } = self;
        drop(ends);
        process.wait_exclusive()
    }
}

impl ParentEnds {
    /// Returns true if a stream passes through this process.
    pub(crate) fn pass_data(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some() || self.feed.is_some()
    }
}

/// The parent's end of one output stream.
#[derive(Debug)]
pub(crate) struct OutputEnd {
    pub(crate) pipe: PipeReader,
    /// The target that gets a copy of everything.
    pub(crate) tee: Option<TeeTarget>,
}

impl OutputEnd {
    pub(crate) fn new(pipe: PipeReader, tee: Option<TeeTarget>) -> OutputEnd {
        OutputEnd { pipe, tee }
    }

    /// Separates the pipes from their tees.
    pub(crate) fn split(
        ends: [Option<OutputEnd>; 2],
    ) -> ([Option<PipeReader>; 2], [Option<TeeTarget>; 2]) {
        let [(out, out_tee), (err, err_tee)] =
            ends.map(|end| end.map_or((None, None), |end| (Some(end.pipe), end.tee)));
        ([out, err], [out_tee, err_tee])
    }
}

/// The part that is kept of the streams that pass through this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collect {
    All,
    /// The end of stderr, for an error.
    StderrTail,
    /// The end of each stream, for an error about a child whose stderr is its terminal.
    Tails,
    Nothing,
    /// Every chunk until the caller takes it.
    Chunks,
}

/// The streams of a run, stdout first, each with its sink.
pub(super) type Streams = [Option<(PipeReader, Sink)>; 2];

/// Creates the sink of each stream.
pub(super) fn streams(
    ends: [Option<OutputEnd>; 2],
    collect: Collect,
    settings: &RunSettings,
) -> Streams {
    let [stdout, stderr] = ends;
    [
        stdout.map(|end| collect.stream(end, Source::Stdout, settings)),
        stderr.map(|end| collect.stream(end, Source::Stderr, settings)),
    ]
}

impl Collect {
    /// Returns the pipe, and its sink with its tee.
    // Not inlined: each copy adds to the program's size.
    #[inline(never)]
    fn stream(self, end: OutputEnd, source: Source, settings: &RunSettings) -> (PipeReader, Sink) {
        let sink = self.sink(source, settings.limit).with_ends(settings, source);
        let sink = match end.tee {
            Some(target) => sink.with_tee(target.open(source)),
            None => sink,
        };
        (end.pipe, sink)
    }

    fn sink(self, source: Source, limit: Option<Limit>) -> Sink {
        // `Limit::fail` stops the child even if nothing is kept.
        let fail = limit.filter(|limit| limit.on_exceed == OnExceed::Fail);
        match self {
            Collect::All => Sink::new(limit),
            Collect::StderrTail if source == Source::Stderr => {
                Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES))))
            }
            Collect::Tails => Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES)))),
            Collect::StderrTail | Collect::Nothing => Sink::discarding(fail),
            Collect::Chunks => Sink::for_chunks(limit),
        }
    }
}

/// The facts about a run apart from its children, its rules and its streams.
#[derive(Debug)]
pub(crate) struct RunInfo {
    pub(crate) started: Instant,
    /// The process that has started the children: not a fork of it.
    pub(crate) made_in: Generation,
    /// Input that is fed in the background.
    pub(crate) background_feed: Option<Box<dyn FedInput>>,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
    pub(crate) stderr_merged: bool,
    pub(crate) terminal: HeldTerminal,
    pub(crate) trace: Trace,
}

/// The two sides of a terminal, until the start.
#[derive(Debug)]
pub(crate) struct TerminalEnds {
    pub(crate) pty: Pty,
    pub(crate) child_end: ChildTerminal,
}

/// The sides of the child's terminal that this process holds while the child runs.
#[derive(Debug, Default)]
pub(crate) struct HeldTerminal {
    /// This process's side: the terminal would hang up without it, even if nobody reads any more.
    pub(crate) pty: Option<Pty>,
    /// The child's side: the output cannot end before the child does. A child that closes the terminal, and opens it
    /// again (`/dev/tty`), would otherwise be lost in between.
    pub(crate) child_end: Option<ChildTerminal>,
}

impl HeldTerminal {
    /// Returns true if a side of a terminal is held.
    pub(crate) fn is_held(&self) -> bool {
        self.pty.is_some() || self.child_end.is_some()
    }
}

/// An owner of the handles of a run's children.
pub(crate) trait Children: Send + Sync {
    fn handles(&self) -> &[ChildHandle];

    /// Returns the process that has started them.
    fn made_in(&self) -> Generation;

    /// Returns their spans.
    fn trace(&self) -> Trace;

    /// Waits for one after the other, as all of them have to end anyway, and returns the status of the whole.
    fn status(&self) -> io::Result<ExitStatus>;
}

// Not derived, nor a supertrait: a program with a run would contain the format of all that it holds, which nobody
// prints.
impl fmt::Debug for dyn Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.handles().iter().map(ChildHandle::pid)).finish()
    }
}

/// The longest time that a drop waits for the child that it has killed.
const KILL_WAIT: Duration = Duration::from_millis(100);

/// Owns the handle of a child.
///
/// # Drop
/// Ends the tree, if it is held. A child that still runs goes to the reaper, and is killed first if `kill_on_drop` is
/// set. In a fork of the process that has started it, the copy only closes its handles.
#[derive(Debug)]
pub(crate) struct OwnedProcess {
    pub(super) child: ChildHandle,
    /// The process that has started it.
    pub(super) made_in: Generation,
    /// Called by a drop, before the reaper. Through a pointer: see [`on_demand`](super::on_demand).
    pub(super) on_drop: Option<fn(&ChildHandle)>,
    pub(super) trace: Trace,
}

/// Kills the child and the descendants that a kill reaches, and waits briefly for the child.
pub(super) fn kill(child: &ChildHandle) {
    // Errors are ignored, as documented: the child has changed its user. The wait is best effort.
    if StopTargets::default().kill(slice::from_ref(child)).is_ok() {
        let until = Instant::now().checked_add(KILL_WAIT);
        let _ = wait::any(&mut [Slot::Event(child)], until);
    }
}

impl OwnedProcess {
    pub(crate) fn new(
        child: ChildHandle,
        on_drop: Option<fn(&ChildHandle)>,
        trace: Trace,
    ) -> OwnedProcess {
        OwnedProcess { child, made_in: Generation::current(), on_drop, trace }
    }

    /// Waits for the end with one system call less: no other thread can use this handle.
    fn wait_exclusive(&mut self) -> io::Result<Ended> {
        let ended = self.child.wait_exclusive()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) -> io::Result<Ended> {
        let ended = self.child.wait()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Returns the end, or `None` while the process runs.
    pub(crate) fn try_wait(&self) -> io::Result<Option<Ended>> {
        let ended = self.child.try_wait()?;
        if let Some(ended) = &ended {
            self.trace.ended(ended.status);
        }
        Ok(ended)
    }

    fn is_running(&self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Deref for OwnedProcess {
    type Target = ChildHandle;

    fn deref(&self) -> &ChildHandle {
        &self.child
    }
}

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        if let Some(tree) = self.child.tree() {
            // The tree's holder goes away with this handle, and no process of the tree may outlive it.
            self.trace.leftovers_killed(tree.end());
            // If somebody killed the holder, the child may still run. Errors are ignored: it has ended.
            let _ = self.child.signal(Signal::KILL);
        }
        let in_group = self.child.end_group();
        if in_group > 0 {
            self.trace.leftovers_killed(in_group);
        }
        if let Some(guard) = self.child.release_tree() {
            reap_now_or_later(guard);
        }
        let is_running = self.is_running();
        self.trace.dropped(&self.child);
        if !is_running {
            return;
        }
        if let Some(kill) = self.on_drop {
            kill(&self.child);
        }
        reap_now_or_later(mem::take(&mut self.child));
    }
}

/// Reaps the child if it has ended, and otherwise leaves that to the reaper.
fn reap_now_or_later(child: ChildHandle) {
    if let Ok(None) = child.try_wait() {
        reaper::reap(child);
    }
}

impl Children for OwnedProcess {
    fn handles(&self) -> &[ChildHandle] {
        slice::from_ref(&self.child)
    }

    fn made_in(&self) -> Generation {
        self.made_in
    }

    fn trace(&self) -> Trace {
        self.trace.clone()
    }

    fn status(&self) -> io::Result<ExitStatus> {
        Ok(self.wait()?.status)
    }
}

/// The result of a wait with a limit: an item, nothing yet, or the end.
///
/// ```
/// use pipewright::{Command, Next};
/// use std::time::Duration;
///
/// let mut lines = Command::new("sh").args(["-c", "sleep 0.1; echo done"]).lines()?;
/// let mut ticks = 0;
/// loop {
///     match lines.next_within(Duration::from_millis(10)) {
///         Next::Item(line) => assert_eq!(line?.text, "done"),
///         Next::Pending => ticks += 1, // Draw something, then wait again.
///         Next::Done => break,
///     }
/// }
/// assert!(ticks > 0);
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<T> {
    /// The next item.
    Item(T),
    /// The limit passed without an item.
    Pending,
    /// The end: no items are left.
    Done,
}

impl<T> Next<T> {
    /// Returns the item, or `None` if there is none yet or none is left.
    #[must_use]
    pub fn item(self) -> Option<T> {
        match self {
            Next::Item(item) => Some(item),
            Next::Pending | Next::Done => None,
        }
    }
}

/// Polls for the next item of a run, but no longer than `until`: takes what is there, and otherwise steps.
pub(crate) fn poll_next_by<S, T>(
    stream: &mut S,
    until: Option<Instant>,
    mut take: impl FnMut(&mut S) -> Option<Result<T, Error>>,
    mut step: impl FnMut(&mut S) -> Poll<Result<bool, Error>>,
) -> Poll<Next<Result<T, Error>>> {
    let mut limit_passed = false;
    loop {
        if let Some(item) = take(stream) {
            return Poll::Ready(Next::Item(item));
        }
        if limit_passed {
            return Poll::Ready(Next::Pending);
        }
        match ready!(step(stream)) {
            Ok(true) => limit_passed = until.is_some_and(|until| Instant::now() >= until),
            Ok(false) => return Poll::Ready(Next::Done),
            Err(error) => return Poll::Ready(Next::Item(Err(error))),
        }
    }
}
