//! The actions that are due because of time, a token or too much output.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::process::child::ChildHandle;

use super::RunState;
use crate::error::OperationError;
use crate::outcome::Outcome;
use crate::rules::Rules;
use crate::run::stop_policy::Due;

impl RunState {
    /// Does everything that is due by now.
    pub(super) fn act(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), OperationError> {
        if self.policy.killed_child_wait_ends().is_some_and(|end| now >= end) {
            let message = "still running 30 s after the kill";
            return Err(("stop", io::Error::new(io::ErrorKind::TimedOut, message)));
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
    ) -> Result<(), OperationError> {
        let Some(token) = &rules.cancel else { return Ok(()) };
        for signal in token.take_signals() {
            for child in children {
                // Ignored: it has ended meanwhile, or has changed its user.
                let _ = child.signal(signal);
            }
        }
        if token.is_cancelled() {
            self.note_ends_in_time(children, now)?;
            self.stop(Outcome::Cancelled, children, rules, now)?;
        }
        Ok(())
    }

    /// Records children that have already ended, so that a later timeout or cancel does not count as the reason. A task
    /// that was not polled for a while learns of readable streams first, and of the end only with its next poll.
    #[cold]
    pub(super) fn note_ends_in_time(
        &mut self,
        children: &[ChildHandle],
        now: Instant,
    ) -> Result<(), OperationError> {
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

    /// Stops the children, unless they are being stopped already.
    pub(crate) fn stop(
        &mut self,
        outcome: Outcome,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), OperationError> {
        self.check_process("stop")?;
        self.given_up |= self.ended.is_some();
        let due = self.policy.stop(outcome, now);
        self.carry_out(due, children, rules)
    }

    /// Stops the children with this grace. A stop that has begun goes on, and takes no longer than before.
    pub(crate) fn stop_within(
        &mut self,
        grace: Duration,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
        let now = Instant::now();
        self.policy.set_grace(grace, now);
        self.stop(Outcome::Cancelled, children, rules, now)
    }

    pub(super) fn carry_out(
        &mut self,
        due: Due,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
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

    /// Reads the bytes that are in the pipes now, and gives the pipes up.
    fn stop_reading(&mut self, rules: &Rules) -> Result<(), OperationError> {
        let was_blocked = self.policy.is_tee_blocked();
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            let rest = stream.give_up(slot, rules.linger_drain);
            let rest = rest.map_err(|e| ("read the output of", e))?;
            self.limit_exceeded |= rest.exceeds_limit;
            self.held_open |= !rest.at_end;
        }
        self.note_tee_blocked();
        if !was_blocked && self.policy.is_tee_blocked() {
            // Its reader has just got the rest, and has as much time for it as for any other bytes.
            self.policy.note_output(Instant::now());
        }
        Ok(())
    }
}
