//! Children that one thread sees through to their ends together.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::wait::{self, Slot};

use super::{End, Runnable, RunningSet};
use crate::cancel::CancelToken;
use crate::error::{Error, Failed};
use crate::outcome::Outcome;
use crate::output::Capture;
use crate::rules::earlier;
use crate::run::{
    ActiveRun, Decide, Enforcement, Options, Processes, RunState, SLOTS, SuspendedRun, decided,
};
use crate::text::into_text;

/// Those that run.
///
/// Two vectors, of the same length: a wait borrows the members while the runs are changed.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    members: Vec<Member>,
    /// `None` between two calls, for a member whose time is kept in the background: its run is suspended there.
    runs: Vec<Option<Box<RunState>>>,
}

/// What of a command is needed after its start.
#[derive(Debug)]
struct Member {
    index: usize,
    /// Enforces the limits in the background. Dropped before the processes, as it has handles on them.
    background: Option<(Enforcement, Arc<SuspendedRun>)>,
    processes: Arc<Processes>,
    program: OsString,
    options: Options,
    decide: Option<Decide>,
}

/// Where one stands before a wait.
enum MemberState {
    Waits,
    Over,
    Failed(Failed),
}

impl RunningSet for RunSet {
    fn len(&self) -> usize {
        self.runs.len()
    }

    fn start(&mut self, index: usize, mut command: Runnable<'_>) -> Result<(), Error> {
        let ActiveRun { processes, state, program, options, decide } = command.start()?;
        let processes = Arc::new(processes);
        let suspended = Arc::new(SuspendedRun::default());
        let enforcement = options.enforce(&processes, &suspended);
        let background = enforcement.map(|enforcement| (enforcement, suspended));
        let member = Member { index, background, processes, program, options, decide };
        let mut run = Some(Box::new(state));
        member.suspend(&mut run);
        self.members.push(member);
        self.runs.push(run);
        Ok(())
    }

    fn stop(&mut self) {
        let now = Instant::now();
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.stop(run, now);
        }
    }

    fn stop_one(&mut self, index: usize) -> bool {
        let mut all = self.runs.iter_mut().zip(&self.members);
        let Some((run, member)) = all.find(|(_, member)| member.index == index) else {
            return false;
        };
        member.stop(run, Instant::now());
        true
    }
}

impl RunSet {
    /// Waits once, for all, but not beyond that time, and does what that brought. Returns the
    /// results of those that are over.
    pub(super) fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        limit: Option<Instant>,
    ) -> Vec<End> {
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.resume(run);
        }
        let over = self.step_all(cancel, limit);
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.suspend(run);
        }
        over
    }

    fn step_all(&mut self, cancel: Option<&CancelToken>, limit: Option<Instant>) -> Vec<End> {
        let mut slots = Vec::with_capacity(self.runs.len() * SLOTS + 1);
        let mut states = Vec::with_capacity(self.runs.len());
        let mut until = limit;
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            let Some(run) = run else {
                states.push(MemberState::Over);
                continue;
            };
            states.push(match run.before(&member.processes, &member.options.rules) {
                Ok(Some(wait)) => {
                    slots.extend(wait.slots);
                    until = earlier(until, wait.until);
                    MemberState::Waits
                }
                Ok(None) => MemberState::Over,
                Err(failed) => MemberState::Failed(failed),
            });
        }
        if states.iter().any(|state| !matches!(state, MemberState::Waits)) {
            // What is over is told now, and nobody is waited for meanwhile.
            until = Some(Instant::now());
        }
        // Ignored: without a flag to wait for, the cancel is seen when something else wakes us.
        slots.extend(cancel.and_then(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until).map(drop);
        if let (Some(token), Some(Slot::EventDone)) = (cancel, slots.last()) {
            self.pass_on(token);
        }
        let mut lent = slots.chunks_mut(SLOTS);
        for ((state, run), member) in states.iter_mut().zip(&mut self.runs).zip(&self.members) {
            let (MemberState::Waits, Some(run)) = (&*state, run) else {
                // It has lent nothing.
                continue;
            };
            let (slots, children) = (lent.next().unwrap_or_default(), &*member.processes);
            let waited = waited.as_ref().map_err(same_error).copied();
            if let Err(failed) = run.after(slots, waited, children, &member.options.rules) {
                *state = MemberState::Failed(failed);
            }
        }
        drop(slots);
        self.take_out(states)
    }

    /// Sends everyone the signals that the token was given for them. Ignored: they have ended.
    fn pass_on(&self, token: &CancelToken) {
        for signal in token.take_signals() {
            for member in &self.members {
                for child in member.processes.iter() {
                    let _ = child.signal(signal);
                }
            }
        }
    }

    fn take_out(&mut self, states: Vec<MemberState>) -> Vec<End> {
        let mut over = Vec::new();
        // From the end: what takes the place of one that is taken out has been looked at.
        for (at, state) in states.into_iter().enumerate().rev() {
            let failed = match state {
                MemberState::Waits => continue,
                MemberState::Over => None,
                MemberState::Failed(failed) => Some(failed),
            };
            let (run, member) = (self.runs.swap_remove(at), self.members.swap_remove(at));
            if let Some(run) = run {
                over.push((member.index, member.end(*run, failed)));
            }
        }
        over
    }
}

impl Member {
    /// Takes the run from where its time is kept meanwhile.
    fn resume(&self, run: &mut Option<Box<RunState>>) {
        if let (Some((_, suspended)), None) = (&self.background, &*run) {
            *run = suspended.take_out();
        }
    }

    /// Leaves the run where its time is kept.
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
                // Another user's by now: nobody can stop it, and nobody waits for it.
                run.abandon(&self.processes);
            }
        }
        self.suspend(run);
    }

    fn end(self, mut run: RunState, failed: Option<Failed>) -> Result<Capture, Error> {
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

fn same_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}
