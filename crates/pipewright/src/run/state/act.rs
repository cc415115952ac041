//! What time, a token or too much output have made necessary.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::process::child::ChildHandle;

use super::RunState;
use crate::error::Failed;
use crate::outcome::Outcome;
use crate::rules::Rules;
use crate::run::stop_policy::Due;

impl RunState {
    /// Does what time has made necessary.
    pub(super) fn act(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        if self.policy.killed_child_wait_ends().is_some_and(|end| now >= end) {
            let words = "it was killed and does not end";
            return Err(("stop", io::Error::new(io::ErrorKind::TimedOut, words)));
        }
        if self.policy.is_time_up(now) {
            self.note_ends_in_time(children, now)?;
        }
        loop {
            match self.policy.due(now, self.is_reading()) {
                Due::Nothing => return Ok(()),
                Due::StopReading => self.stop_reading(rules)?,
                due => self.carry_out(due, children, rules)?,
            }
        }
    }

    /// Forwards the signals of the token, and stops the children if it is cancelled.
    pub(super) fn handle_cancel(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        let Some(token) = &rules.cancel else { return Ok(()) };
        for signal in token.take_signals() {
            for child in children {
                // Ignored: it has ended meanwhile, or has become another user's.
                let _ = child.signal(signal);
            }
        }
        if token.is_cancelled() {
            self.note_ends_in_time(children, now)?;
            self.stop(Outcome::Cancelled, children, rules, now)?;
        }
        Ok(())
    }

    /// Notes that children have ended, before they are stopped for what came later. A task that was away is told of
    /// what can be read first, and of the end with the next turn.
    #[cold]
    fn note_ends_in_time(&mut self, children: &[ChildHandle], now: Instant) -> Result<(), Failed> {
        loop {
            let ended_count = self.ended_count;
            if !self.is_stopping() {
                self.note_end(children, now)?;
            }
            if self.ended_count == ended_count {
                return Ok(());
            }
        }
    }

    /// Stops the children, if nothing has stopped them yet.
    pub(crate) fn stop(
        &mut self,
        why: Outcome,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), Failed> {
        self.given_up |= self.ended.is_some();
        let due = self.policy.stop(why, now);
        self.carry_out(due, children, rules)
    }

    /// The same, with that grace. A stop that is under way goes on, and ends no later.
    pub(crate) fn stop_within(
        &mut self,
        grace: Duration,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        let now = Instant::now();
        self.policy.set_grace(grace, now);
        self.stop(Outcome::Cancelled, children, rules, now)
    }

    pub(super) fn carry_out(
        &mut self,
        due: Due,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        match due {
            Due::SendStopSignal => {
                let signal = rules.effective_stop_signal();
                self.info.trace.stopping(signal, self.policy.stopped());
                if !self.targets.request_stop(children, signal) {
                    self.policy.note_unsignalable();
                }
            }
            Due::Kill => {
                self.info.trace.killing(self.policy.stopped());
                self.targets.kill(children).map_err(|e| ("stop", e))?;
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
            self.limit_exceeded |= rest.too_much;
            self.held_open |= !rest.at_end;
        }
        self.note_held_up();
        Ok(())
    }
}
