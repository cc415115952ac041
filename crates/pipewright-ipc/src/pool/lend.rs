//! What the driver lends to callers, and has back.

use super::direct::Rest;
use super::driver::Driver;
use super::shelf::Returned;
use crate::error::Error;

impl Driver {
    /// Takes back every connection that no caller has.
    pub(super) fn take_back(&mut self) {
        let mut taken = Vec::new();
        self.mailbox.0.shelf.take_back(&mut taken);
        for returned in taken {
            let _ = self.have_back(returned);
        }
    }

    /// A connection has come back. Where its worker stands, which is there as long as that is lent.
    pub(super) fn have_back(&mut self, returned: Returned) -> Option<usize> {
        let at = self.workers.iter().position(|it| it.number == returned.worker)?;
        if returned.used.has_answered {
            self.fleet.note_success();
        }
        self.workers.get_mut(at)?.have_back(returned);
        Some(at)
    }

    /// Goes on with a call that its caller had begun.
    pub(super) fn go_on_with(&mut self, rest: Rest) {
        let Rest { returned, job, outgoing, heard } = rest;
        let Some(at) = self.have_back(returned) else { return };
        if let Some(worker) = self.workers.get_mut(at) {
            worker.go_on_with(job, outgoing);
        }
        let said = heard.and_then(|piece| piece.map_or(Ok(()), |piece| self.hear(at, piece)));
        self.give_up_where(at, said);
    }

    /// Nothing more comes of a worker with which that went wrong.
    pub(super) fn give_up_where(&mut self, at: usize, said: Result<(), Error>) {
        if let (Err(error), Some(worker)) = (said, self.workers.get_mut(at)) {
            worker.give_up(error);
        }
    }

    /// Lets callers have the connection of a worker that has nothing to do.
    pub(super) fn lend(&mut self, at: usize) {
        let nobody_waits = self.waiting.is_empty() && self.ending.is_none();
        let Some(worker) = self.workers.get_mut(at) else { return };
        if nobody_waits && self.options.may_lend() && worker.version == self.files.version {
            worker.lend(&self.mailbox.0.shelf, self.files.fresh_until());
        }
    }

    /// Makes a worker ready for a wait. `false`: there is something already.
    pub(super) fn settle(&mut self, at: usize, may_lend: bool) -> bool {
        if may_lend {
            self.lend(at);
        }
        let calls_wait = !self.waiting.is_empty();
        let Some(worker) = self.workers.get_mut(at) else { return true };
        let has_news = !worker.fall_asleep();
        !has_news && !worker.want_back(&self.mailbox.0.shelf, calls_wait)
    }
}
