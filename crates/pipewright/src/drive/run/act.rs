//! What time, a token or too much output have made necessary.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::process::child::ChildHandle;

use super::{Failed, Run};
use crate::command::Rules;
use crate::drive::conduct::Due;
use crate::outcome::Outcome;

impl Run {
    /// Does what time has made necessary.
    pub(super) fn act(
        &mut self,
        exits: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        if self.conduct.killed_child_wait_ends().is_some_and(|end| now >= end) {
            let words = "it was killed and does not end";
            return Err(("stop", io::Error::new(io::ErrorKind::TimedOut, words)));
        }
        if self.conduct.is_time_up(now) {
            self.note_ends_in_time(exits, now)?;
        }
        loop {
            match self.conduct.due(now, self.is_reading()) {
                Due::Nothing => return Ok(()),
                Due::StopReading => self.stop_reading(rules)?,
                due => self.carry_out(due, exits, rules)?,
            }
        }
    }

    /// Does what the token says.
    pub(super) fn heed(
        &mut self,
        exits: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        let Some(token) = &rules.cancel else { return Ok(()) };
        for signal in token.heed() {
            for exit in exits {
                // Ignored: it has ended meanwhile, or has become another user's.
                let _ = exit.signal(signal);
            }
        }
        if token.is_cancelled() {
            self.note_ends_in_time(exits, now)?;
            self.stop(Outcome::Cancelled, exits, rules, now)?;
        }
        Ok(())
    }

    /// Notes that children have ended, before they are stopped for what came later. A task that was away is told of
    /// what can be read first, and of the end with the next turn.
    #[cold]
    fn note_ends_in_time(&mut self, exits: &[ChildHandle], now: Instant) -> Result<(), Failed> {
        loop {
            let gone = self.gone;
            if !self.is_stopping() {
                self.note_end(exits, now)?;
            }
            if self.gone == gone {
                return Ok(());
            }
        }
    }

    /// Stops the children, if nothing has stopped them yet.
    pub(crate) fn stop(
        &mut self,
        why: Outcome,
        exits: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        self.given_up |= self.ended.is_some();
        let due = self.conduct.stop(why, now);
        self.carry_out(due, exits, rules)
    }

    /// The same, with that grace. A stop that is under way goes on, and ends no later.
    pub(crate) fn stop_within(
        &mut self,
        grace: Duration,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        let now = Instant::now();
        self.conduct.set_grace(grace, now);
        self.stop(Outcome::Cancelled, exits, rules, now)
    }

    pub(super) fn carry_out(
        &mut self,
        due: Due,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        match due {
            Due::Ask => {
                let signal = rules.signal_that_stops();
                self.trace.stopping(signal, self.conduct.stopped());
                if !self.reach.ask(exits, signal) {
                    self.conduct.note_deaf();
                }
            }
            Due::Kill => {
                self.trace.killing(self.conduct.stopped());
                self.reach.kill(exits).map_err(|e| ("stop", e))?;
            }
            Due::Nothing | Due::StopReading => {}
        }
        Ok(())
    }

    /// Takes what is in the pipes at this moment, and gives them up.
    fn stop_reading(&mut self, rules: &Rules) -> Result<(), Failed> {
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            let rest = stream.give_up(slot, rules.linger_drain);
            let rest = rest.map_err(|e| ("read the output of", e))?;
            self.too_much |= rest.too_much;
            self.held_open |= !rest.at_end;
        }
        self.note_held_up();
        Ok(())
    }
}
