//! What a worker is at, and how it ends: by itself, after a goodbye, or by a signal.

use std::time::{Duration, Instant};

use pipewright::Signal;

use super::{Link, Schedule, Worker};
use crate::error::{Error, ErrorKind};
use crate::handshake;

/// How long a worker that has closed its end has to end, before it is killed.
const END_TAKES: Duration = Duration::from_secs(1);

/// What a worker is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Phase {
    Starting,
    /// Takes calls.
    Serving,
    /// Becomes as if it had just been started, and has to say so until then.
    Resetting(Option<Instant>),
    /// Was told to end; what is done next, and when.
    Leaving(Leave, Option<Instant>),
}

/// What is done next to a worker that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) enum Leave {
    Terminate,
    Kill,
    /// Nothing: it has been killed.
    Wait,
}

impl Worker {
    /// Nothing more is said to it or heard of it; it ends soon, or is killed.
    pub(in crate::pool) fn give_up(&mut self, why: Error) {
        let is_gone = why.is_disconnect();
        self.link = Link::Closed;
        if self.fault.is_none() {
            self.fault = Some(why);
        }
        match self.phase {
            Phase::Leaving(..) if is_gone => {}
            _ if is_gone => {
                let until = Instant::now().checked_add(END_TAKES);
                self.phase = Phase::Leaving(Leave::Kill, until);
            }
            _ => self.kill(),
        }
    }

    /// Says goodbye. It ends soon, or is ended.
    pub(in crate::pool) fn let_go(&mut self, schedule: Schedule) {
        if matches!(self.phase, Phase::Leaving(..)) {
            return;
        }
        self.is_retired = true;
        let until = Instant::now().checked_add(schedule.goodbye);
        match &mut self.link {
            Link::Open(connection) => {
                self.phase = Phase::Leaving(Leave::Terminate, until);
                if let Err(error) = connection.line.say_goodbye() {
                    self.give_up(error);
                }
                self.is_due = true;
            }
            // It has not yet said who it is: nothing can be said to it.
            _ => self.kill(),
        }
    }

    pub(in crate::pool) fn kill(&mut self) {
        self.phase = Phase::Leaving(Leave::Wait, None);
        // Ignored: it has become another user's, and will find its connection closed.
        self.was_killed |= self.child.kill().is_ok() && !self.exited;
    }

    /// Does what is next, where that is due.
    pub(in crate::pool) fn keep_to_schedule(&mut self, now: Instant, schedule: Schedule) {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match self.phase {
            Phase::Starting if self.greeting_until().is_some_and(|until| until <= now) => {
                self.give_up(handshake::timed_out(Some(&self.child)));
            }
            Phase::Resetting(until) if due(until) => {
                let waiting_for = "a reset";
                let peer = self.as_peer();
                self.give_up(Error::new(ErrorKind::TimedOut { waiting_for, peer }));
            }
            Phase::Leaving(Leave::Terminate, until) if due(until) => {
                let until = now.checked_add(schedule.terminate);
                match self.child.signal(Signal::TERM) {
                    Ok(_) => self.phase = Phase::Leaving(Leave::Kill, until),
                    Err(_) => self.kill(),
                }
            }
            Phase::Leaving(Leave::Kill, until) if due(until) => self.kill(),
            _ => {}
        }
    }

    fn greeting_until(&self) -> Option<Instant> {
        match &self.link {
            Link::Greeting(greeting) => greeting.until(),
            _ => None,
        }
    }

    /// When something is next, whatever happens.
    pub(in crate::pool) fn next_step(&self) -> Option<Instant> {
        match self.phase {
            Phase::Starting => self.greeting_until(),
            Phase::Serving => None,
            Phase::Resetting(until) | Phase::Leaving(_, until) => until,
        }
    }
}
