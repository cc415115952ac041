//! A set of runs that one thread runs to their ends together.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::runnable::{BegunCapture, StartingCapture};
use super::{CommandEnd, Runnable, RunningSet};
use crate::cancel::CancelToken;
use crate::error::{Error, OperationError};
use crate::outcome::Outcome;
use crate::output::Capture;
use crate::rules::earlier;
use crate::run::{
    ActiveRun, Decide, Enforcement, Processes, RunSettings, RunState, SLOTS, SuspendedRun, decided,
};
use crate::text::into_text;

/// The running commands.
///
/// The two vectors have the same length: a wait borrows the members while the runs are changed.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    members: Vec<RunningCommand>,
    /// `None` between two calls, for a member whose rules are enforced in the background: its run is suspended there.
    runs: Vec<Option<Box<RunState>>>,
    /// The commands that slots have been asked to start.
    starting: Vec<(usize, StartingCapture)>,
    /// The results of starts that failed after they had begun.
    failed: Vec<CommandEnd>,
}

/// The facts about a started command.
#[derive(Debug)]
struct RunningCommand {
    index: usize,
    /// The enforcement in the background. Dropped before the processes, because it has handles of them.
    background: Option<(Enforcement, Arc<SuspendedRun>)>,
    processes: Arc<Processes>,
    program: OsString,
    options: RunSettings,
    decide: Option<Decide>,
}

/// The state of a member before a wait.
enum CommandState {
    Waiting,
    Ended,
    Failed(OperationError),
}

impl RunningSet for RunSet {
    fn len(&self) -> usize {
        self.runs.len() + self.starting.len() + self.failed.len()
    }

    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error> {
        match command.begin()? {
            BegunCapture::Running(run) => self.add(index, run),
            BegunCapture::Starting(start) => self.starting.push((index, start)),
        }
        Ok(())
    }

    fn stop(&mut self) {
        while let Some((index, start)) = self.starting.pop() {
            self.finish_start(index, start);
        }
        let now = Instant::now();
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.stop(run, now);
        }
    }

    fn stop_one(&mut self, index: usize) -> bool {
        if let Some(at) = self.starting.iter().position(|(starting, _)| *starting == index) {
            let (index, start) = self.starting.swap_remove(at);
            self.finish_start(index, start);
        }
        let mut all = self.runs.iter_mut().zip(&self.members);
        if let Some((run, member)) = all.find(|(_, member)| member.index == index) {
            member.stop(run, Instant::now());
            return true;
        }
        self.failed.iter().any(|(failed, _)| *failed == index)
    }
}

impl RunSet {
    fn add(&mut self, index: usize, run: ActiveRun) {
        let ActiveRun { processes, state, program, options, decide } = run;
        let processes = Arc::new(processes);
        let suspended = Arc::new(SuspendedRun::default());
        let enforcement = options.enforce(&processes, &suspended);
        let background = enforcement.map(|enforcement| (enforcement, suspended));
        let member = RunningCommand { index, background, processes, program, options, decide };
        let mut run = Some(Box::new(state));
        member.suspend(&mut run);
        self.members.push(member);
        self.runs.push(run);
    }

    fn finish_start(&mut self, index: usize, start: StartingCapture) {
        match start.finish() {
            Ok(run) => self.add(index, run),
            Err(error) => self.failed.push((index, Err(error))),
        }
    }

    /// Finishes the starts whose results have come.
    fn finish_starts(&mut self, has_come: &[bool]) {
        // From the end: the start that replaces a removed one has already been handled.
        for (at, has_come) in has_come.iter().enumerate().rev() {
            if *has_come {
                let (index, start) = self.starting.swap_remove(at);
                self.finish_start(index, start);
            }
        }
    }

    /// Waits once for all members, but no longer than `limit`, and until the flag is raised. Returns the results of those
    /// that have ended.
    pub(super) fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.resume(run);
        }
        // A panic that came with results, which were returned first.
        self.resume_panics();
        let ends = self.step_all(cancel, wake, limit);
        if ends.is_empty() {
            self.resume_panics();
        }
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.suspend(run);
        }
        ends
    }

    /// Continues the panic of a tee's closure. The runs continue if the caller catches it.
    fn resume_panics(&mut self) {
        self.runs.iter_mut().flatten().for_each(|run| run.resume_panic());
    }

    fn step_all(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        let mut slots = Vec::with_capacity(self.runs.len() * SLOTS + self.starting.len() + 2);
        let mut states = Vec::with_capacity(self.runs.len());
        let mut until = limit;
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            let Some(run) = run else {
                states.push(CommandState::Ended);
                continue;
            };
            states.push(match run.before(&member.processes, &member.options.rules) {
                Ok(Some(wait)) => {
                    slots.extend(wait.slots);
                    until = earlier(until, wait.until);
                    CommandState::Waiting
                }
                Ok(None) => CommandState::Ended,
                Err(failed) => CommandState::Failed(failed),
            });
        }
        let has_ends = states.iter().any(|state| !matches!(state, CommandState::Waiting));
        if has_ends || !self.failed.is_empty() {
            // There are results to return now, so the wait must not block.
            until = Some(Instant::now());
        }
        let starts_at = slots.len();
        slots.extend(self.starting.iter().map(|(_, start)| Slot::Event(start.result())));
        slots.extend(wake.map(|wake| Slot::Event(wake)));
        // Ignored: a token without a flag is checked when something else wakes this thread.
        slots.extend(cancel.and_then(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until).map(drop);
        if let (Some(token), Some(Slot::EventDone)) = (cancel, slots.last()) {
            self.forward_signals(token);
        }
        let starts = slots.iter().skip(starts_at).take(self.starting.len());
        let has_come: Vec<_> = starts.map(|slot| matches!(slot, Slot::EventDone)).collect();
        let mut lent = slots.chunks_mut(SLOTS);
        for ((state, run), member) in states.iter_mut().zip(&mut self.runs).zip(&self.members) {
            let (CommandState::Waiting, Some(run)) = (&*state, run) else {
                // It lent no slots.
                continue;
            };
            let (slots, children) = (lent.next().unwrap_or_default(), &*member.processes);
            let waited = waited.as_ref().map_err(copy_error).copied();
            if let Err(failed) = run.after(slots, waited, children, &member.options.rules) {
                *state = CommandState::Failed(failed);
            }
        }
        drop(slots);
        let mut ends = self.remove_ended(states);
        self.finish_starts(&has_come);
        ends.append(&mut self.failed);
        ends
    }

    /// Forwards the token's signals to all children. Errors are ignored: a child has ended.
    fn forward_signals(&self, token: &CancelToken) {
        for signal in token.take_signals() {
            for member in &self.members {
                for child in member.processes.iter() {
                    let _ = child.signal(signal);
                }
            }
        }
    }

    /// Removes the members that have ended, and returns their results.
    fn remove_ended(&mut self, states: Vec<CommandState>) -> Vec<CommandEnd> {
        let mut ends = Vec::new();
        // From the end: the member that replaces a removed one has already been handled.
        for (at, state) in states.into_iter().enumerate().rev() {
            let failed = match state {
                CommandState::Waiting => continue,
                CommandState::Ended => None,
                CommandState::Failed(failed) => Some(failed),
            };
            let (run, member) = (self.runs.swap_remove(at), self.members.swap_remove(at));
            if let Some(run) = run {
                ends.push((member.index, member.end(*run, failed)));
            }
        }
        ends
    }
}

impl RunningCommand {
    /// Takes the run back from the enforcement in the background.
    fn resume(&self, run: &mut Option<Box<RunState>>) {
        if let (Some((_, suspended)), None) = (&self.background, &*run) {
            *run = suspended.take_out();
        }
    }

    /// Leaves the run to the enforcement in the background.
    fn suspend(&self, run: &mut Option<Box<RunState>>) {
        if let (Some((_, suspended)), Some(run)) =
            (&self.background, run.take_if(|_| self.background.is_some()))
        {
            suspended.put(run);
        }
    }

    fn stop(&self, run: &mut Option<Box<RunState>>, now: Instant) {
        self.resume(run);
        if let Some(run) = run {
            if run.stop(Outcome::Cancelled, &self.processes, &self.options.rules, now).is_err() {
                // A child has changed its user and cannot be stopped. The others are killed.
                run.abandon(&self.processes);
            }
        }
        self.suspend(run);
    }

    fn end(self, mut run: RunState, failed: Option<OperationError>) -> Result<Capture, Error> {
        let children = &self.processes;
        let output = match failed {
            None => run.finish(children).and_then(|whole| {
                decided(self.decide, children, whole).map_err(|source| ("wait for", source))
            }),
            Some(failed) => {
                run.abandon(children);
                Err(failed)
            }
        };
        let output =
            output.map_err(|(doing, source)| Error::cannot(&self.program, doing, source))?;
        into_text(&self.program, self.options.decoding, output)
    }
}

impl Drop for RunSet {
    fn drop(&mut self) {
        for (mut run, member) in mem::take(&mut self.runs).into_iter().zip(&self.members) {
            member.resume(&mut run);
            if let Some(mut run) = run {
                run.abandon(&member.processes);
            }
        }
    }
}

/// Copies an error for another member.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}
