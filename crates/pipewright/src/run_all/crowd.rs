//! Children that one thread sees through to their ends together.

use std::ffi::OsString;
use std::io;
use std::mem;
use std::time::Instant;

use pipewright_os::mux::{self, Slot};

use super::{End, Running};
use crate::cancel::CancelToken;
use crate::child::Process;
use crate::command::{Begun, Command, Rules, into_text};
use crate::drive::{Failed, Run, SLOTS, earlier};
use crate::error::Error;
use crate::output::{Capture, Outcome};
use crate::text::Decoding;

/// Those that run.
///
/// Two vectors, of the same length: a wait borrows the members while the runs are changed.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    members: Vec<Member>,
    runs: Vec<Run>,
}

/// What of a command is needed after its start.
#[derive(Debug)]
struct Member {
    index: usize,
    process: Process,
    program: OsString,
    rules: Rules,
    decoding: Decoding,
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

    fn start(&mut self, index: usize, command: &mut Command) -> Result<(), Error> {
        let Begun { process, run, program, rules, decoding } = command.begin_capture()?;
        self.members.push(Member { index, process, program, rules, decoding });
        self.runs.push(run);
        Ok(())
    }

    fn stop(&mut self) {
        let now = Instant::now();
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            let exits = member.process.alone();
            if run.stop(Outcome::Cancelled, exits, &member.rules, now).is_err() {
                // Another user's by now: nobody can stop it, and nobody waits for it.
                run.abandon(exits);
            }
        }
    }
}

impl Crowd {
    /// Waits once, for all, and does what that brought. Gives those that are over, and what came of
    /// them.
    pub(super) fn step(&mut self, cancel: Option<&CancelToken>) -> Vec<End> {
        let mut slots = Vec::with_capacity(self.runs.len() * SLOTS + 1);
        let mut states = Vec::with_capacity(self.runs.len());
        let mut until = None;
        for (run, member) in self.runs.iter_mut().zip(&self.members) {
            states.push(match run.before(member.process.alone(), &member.rules) {
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
        slots.extend(cancel.and_then(|token| token.wake().ok()).map(Slot::Wake));
        let waited = mux::wait(&mut slots, until).map(drop);
        if let (Some(token), Some(Slot::WakeDone)) = (cancel, slots.last()) {
            self.pass_on(token);
        }
        let mut lent = slots.chunks_mut(SLOTS);
        for ((state, run), member) in states.iter_mut().zip(&mut self.runs).zip(&self.members) {
            if !matches!(state, State::Waits) {
                // It has lent nothing.
                continue;
            }
            let (slots, exits) = (lent.next().unwrap_or_default(), member.process.alone());
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
                let _ = member.process.signal(signal);
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
            over.push((member.index, member.end(run, failed)));
        }
        over
    }
}

impl Member {
    fn end(self, mut run: Run, failed: Option<Failed>) -> Result<Capture, Error> {
        let exits = self.process.alone();
        let output = match failed {
            None => run.finish(exits),
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
            run.abandon(member.process.alone());
        }
    }
}

fn same_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}
