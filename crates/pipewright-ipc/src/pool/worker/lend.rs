//! What becomes of a worker whose connection a caller may have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::wake::Wake;

use super::{Link, OpenCall, Phase, Worker};
use crate::channel::Sending;
use crate::pool::job::Job;
use crate::pool::shelf::{Lent, Returned, Shelf};

impl Worker {
    /// Whether it can answer calls, whoever has its connection.
    pub(in crate::pool) fn is_in_service(&self) -> bool {
        self.phase == Phase::Serving && self.fault.is_none() && !self.exited
    }

    /// Whether its connection is on the shelf, or with a caller.
    pub(in crate::pool) fn is_lent(&self) -> bool {
        matches!(self.link, Link::Lent)
    }

    /// Puts its connection on the shelf if it has nothing to do, to be taken until then.
    pub(in crate::pool) fn lend(&mut self, shelf: &Shelf, until: Option<Instant>) {
        let is_idle = self.calls.is_empty() && self.outgoing.is_empty() && !self.is_due;
        if !is_idle || !self.is_serving() {
            return;
        }
        let Some(wake) = self.wake() else { return };
        self.link = match std::mem::replace(&mut self.link, Link::Lent) {
            Link::Open(connection) if connection.is_quiet() => {
                let (worker, jobs) = (self.number, Arc::clone(&self.jobs));
                shelf.put(Lent { worker, connection, wake, jobs }, until, self.last_used);
                Link::Lent
            }
            link => link,
        };
    }

    /// What whoever has its connection is told through. `None`: there is no room for another handle.
    fn wake(&mut self) -> Option<Arc<Wake>> {
        if self.wake.is_none() {
            self.wake = Wake::new().ok().map(Arc::new);
        }
        self.wake.clone()
    }

    /// Takes its connection back.
    pub(in crate::pool) fn have_back(&mut self, returned: Returned) {
        self.last_used = self.last_used.max(returned.used.last);
        self.link = Link::Open(returned.connection);
        // Of one that has ended, what it said last is in there.
        self.is_due |= self.exited;
    }

    /// Goes on with a call that its caller had begun.
    pub(in crate::pool) fn go_on_with(&mut self, mut job: Job, mut outgoing: VecDeque<Sending>) {
        job.attempts = 1;
        outgoing.append(&mut self.outgoing);
        self.outgoing = outgoing;
        self.calls.push(OpenCall { job, unwanted_until: None, credit: 0, has_asked: false });
        self.is_due = true;
    }

    /// Asks for its connection where that is needed: because it has ended, or because calls wait. `true`: it is
    /// on the shelf again, and has only to be taken.
    pub(in crate::pool) fn want_back(&self, shelf: &Shelf, calls_wait: bool) -> bool {
        self.is_lent() && (self.exited || calls_wait) && shelf.want(self.number, self.exited)
    }
}
