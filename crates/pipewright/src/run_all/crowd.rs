//! Children that one thread sees through to their ends together.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::wait::{self, Slot};

use super::{End, Runnable, Running};
use crate::cancel::CancelToken;
use crate::child::Processes;
use crate::command::{Begun, Rules, into_text};
use crate::drive::{Decide, Failed, Keeping, Parked, Run, SLOTS, earlier};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::output::Capture;
use crate::text::Decoding;

/// Those that run.
///
/// Two vectors, of the same length: a wait borrows the members while the runs are changed.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    members: Vec<Member>,
    /// `None` between two calls, for a member whose time is kept in the background: its run is parked there.
    runs: Vec<Option<Box<Run>>>,
}

/// What of a command is needed after its start.
#[derive(Debug)]
struct Member {
    index: usize,
    /// Enforces the limits in the background. Dropped before the processes, as it has handles on them.
    background: Option<(Keeping, Arc<Parked>)>,
    processes: Arc<Processes>,
    program: OsString,
    rules: Rules,
    decoding: Decoding,
    decide: Option<Decide>,
}

/// Where one stands before a wait.
enum State {
    Waits,
    Over,
    Failed(Failed),
}

impl Running for Crowd {
    fn len(&self) -> usize {
        self.runs.len()
    }

    fn start(&mut self, index: usize, mut command: Runnable<'_>) -> Result<(), Error> {
        let Begun { processes, run, program, rules, decoding, decide } = command.begin()?;
        let processes = Arc::new(processes);
        let parked = Arc::new(Parked::default());
        let background = rules.keep(&processes, &parked).map(|keeping| (keeping, parked));
        let member = Member { index, background, processes, program, rules, decoding, decide };
        let mut run = Some(Box::new(run));
        member.park(&mut run);
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

impl Crowd {
    /// Waits once, for all, but not beyond that time, and does what that brought. Returns the
    /// results of those that are over.
    pub(super) fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        limit: Option<Instant>,
    ) -> Vec<End> {
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.fetch(run);
        }
        let over = self.step_all(cancel, limit);
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            member.park(run);
        }
        over
    }

    fn step_all(&mut self, cancel: Option<&CancelToken>, limit: Option<Instant>) -> Vec<End> {
        let mut slots = Vec::with_capacity(self.runs.len() * SLOTS + 1);
        let mut states = Vec::with_capacity(self.runs.len());
        let mut until = limit;
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            let Some(run) = run else {
                states.push(State::Over);
                continue;
            };
            states.push(match run.before(&member.processes, &member.rules) {
                Ok(Some(wait)) => {
                    slots.extend(wait.slots);
                    until = earlier(until, wait.until);
                    State::Waits
                }
                Ok(None) => State::Over,
                Err(failed) => State::Failed(failed),
            });
        }
        if states.iter().any(|state| !matches!(state, State::Waits)) {
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
            let (State::Waits, Some(run)) = (&*state, run) else {
                // It has lent nothing.
                continue;
            };
            let (slots, exits) = (lent.next().unwrap_or_default(), &*member.processes);
            let waited = waited.as_ref().map_err(same_error).copied();
            if let Err(failed) = run.after(slots, waited, exits, &member.rules) {
                *state = State::Failed(failed);
            }
        }
        drop(slots);
        self.take_out(states)
    }

    /// Sends everyone the signals that the token was given for them. Ignored: they have ended.
    fn pass_on(&self, token: &CancelToken) {
        for signal in token.heed() {
            for member in &self.members {
                for exit in member.processes.iter() {
                    let _ = exit.signal(signal);
                }
            }
        }
    }

    fn take_out(&mut self, states: Vec<State>) -> Vec<End> {
        let mut over = Vec::new();
        // From the end: what takes the place of one that is taken out has been looked at.
        for (at, state) in states.into_iter().enumerate().rev() {
            let failed = match state {
                State::Waits => continue,
                State::Over => None,
                State::Failed(failed) => Some(failed),
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
    fn fetch(&self, run: &mut Option<Box<Run>>) {
        if let (Some((_, parked)), None) = (&self.background, &*run) {
            *run = parked.take_out();
        }
    }

    /// Leaves the run where its time is kept.
    fn park(&self, run: &mut Option<Box<Run>>) {
        if let (Some((_, parked)), Some(run)) =
            (&self.background, run.take_if(|_| self.background.is_some()))
        {
            parked.put(run);
        }
    }

    fn stop(&self, run: &mut Option<Box<Run>>, now: Instant) {
        self.fetch(run);
        if let Some(run) = run {
            if run.stop(Outcome::Cancelled, &self.processes, &self.rules, now).is_err() {
                // Another user's by now: nobody can stop it, and nobody waits for it.
                run.abandon(&self.processes);
            }
        }
        self.park(run);
    }

    fn end(self, mut run: Run, failed: Option<Failed>) -> Result<Capture, Error> {
        let exits = &self.processes;
        let output = match failed {
            None => run.finish(exits).and_then(|whole| match self.decide {
                Some(decide) => decide(exits, whole).map_err(|source| ("wait for", source)),
                None => Ok(whole),
            }),
            Some(failed) => {
                run.abandon(exits);
                Err(failed)
            }
        };
        let output = output.map_err(|(doing, source)| Error::talk(&self.program, doing, source))?;
        into_text(&self.program, self.decoding, output)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for (mut run, member) in mem::take(&mut self.runs).into_iter().zip(&self.members) {
            member.fetch(&mut run);
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
