//! The phases of a worker, and its end: by itself, after GOODBYE, or by a signal.

use std::time::Instant;

use pipewright::Signal;

use super::{ConnectionState, Schedule, Worker};
use crate::error::{Error, ErrorKind};
use crate::handshake;
use crate::process::EXIT_DEADLINE;

/// The phase of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum WorkerPhase {
    Starting,
    /// Takes calls.
    Serving,
    /// Resets its state, and has to confirm that by this deadline.
    Resetting(Option<Instant>),
    /// Has to end: the next step against it, and the time of that step.
    Leaving(StopStep, Option<Instant>),
}

/// The next step against a worker that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum StopStep {
    Terminate,
    Kill,
    /// None: it was killed, and ends at once.
    Wait,
    /// None: it was killed, and did not end.
    Nothing,
}

impl Worker {
    /// Closes its connection because of this error. It ends soon, or is killed.
    pub(in crate::pool) fn fail(&mut self, error: Error) {
        let is_gone = error.is_disconnect();
        self.close();
        if self.fault.is_none() {
            self.fault = Some(error);
        }
        match self.phase {
            WorkerPhase::Leaving(..) if is_gone => {}
            _ if is_gone => {
                let until = Instant::now().checked_add(EXIT_DEADLINE);
                self.phase = WorkerPhase::Leaving(StopStep::Kill, until);
            }
            _ => self.kill(),
        }
    }

    fn close(&mut self) {
        match std::mem::replace(&mut self.connection, ConnectionState::Closed) {
            ConnectionState::Open(connection) => connection.discard(),
            ConnectionState::Handshake(handshake) => handshake.discard(),
            ConnectionState::Lent | ConnectionState::Closed => {}
        }
    }

    /// Kills it, and closes its connection: the pool is dropped.
    pub(in crate::pool) fn stop(&mut self) {
        self.kill();
        self.close();
    }

    /// Returns true if it was killed and did not end: it may not be signalled, or hangs in the kernel. Nobody waits for it.
    pub(in crate::pool) fn is_abandoned(&self) -> bool {
        matches!(self.phase, WorkerPhase::Leaving(StopStep::Nothing, _))
    }

    /// Sends GOODBYE. It ends soon, or by this schedule.
    pub(in crate::pool) fn retire(&mut self, schedule: Schedule) {
        if matches!(self.phase, WorkerPhase::Leaving(..)) {
            return;
        }
        self.is_retired = true;
        let until = Instant::now().checked_add(schedule.goodbye);
        match &mut self.connection {
            ConnectionState::Open(connection) => {
                self.phase = WorkerPhase::Leaving(StopStep::Terminate, until);
                if let Err(error) = connection.inner.send_goodbye() {
                    self.fail(error);
                }
                self.is_due = true;
            }
            // Nothing can be sent before the handshake is complete.
            _ => self.kill(),
        }
    }

    pub(in crate::pool) fn kill(&mut self) {
        let until = Instant::now().checked_add(EXIT_DEADLINE);
        self.phase = WorkerPhase::Leaving(StopStep::Wait, until);
        // Ignored: a worker that has changed its user cannot be killed, and finds its connection closed.
        self.was_killed |= self.child.kill().is_ok() && !self.exited;
    }

    /// Takes the next step if it is due.
    pub(in crate::pool) fn enforce_schedule(&mut self, now: Instant, schedule: Schedule) {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match self.phase {
            WorkerPhase::Starting
                if self.handshake_deadline().is_some_and(|until| until <= now) =>
            {
                self.fail(handshake::timed_out(Some(&self.child)));
            }
            WorkerPhase::Resetting(until) if due(until) => {
                let waiting_for = "a reset";
                let peer = self.as_peer();
                self.fail(Error::new(ErrorKind::TimedOut { waiting_for, peer }));
            }
            WorkerPhase::Leaving(StopStep::Terminate, until) if due(until) => {
                let until = now.checked_add(schedule.terminate);
                match self.child.signal(Signal::TERM) {
                    Ok(_) => self.phase = WorkerPhase::Leaving(StopStep::Kill, until),
                    Err(_) => self.kill(),
                }
            }
            WorkerPhase::Leaving(StopStep::Kill, until) if due(until) => self.kill(),
            WorkerPhase::Leaving(StopStep::Wait, until) if due(until) => {
                self.phase = WorkerPhase::Leaving(StopStep::Nothing, None);
                self.close();
            }
            _ => {}
        }
    }

    fn handshake_deadline(&self) -> Option<Instant> {
        match &self.connection {
            ConnectionState::Handshake(handshake) => handshake.until(),
            _ => None,
        }
    }

    /// Returns the deadline of the phase.
    pub(in crate::pool) fn phase_deadline(&self) -> Option<Instant> {
        match self.phase {
            WorkerPhase::Starting => self.handshake_deadline(),
            WorkerPhase::Serving => None,
            WorkerPhase::Resetting(until) | WorkerPhase::Leaving(_, until) => until,
        }
    }
}
