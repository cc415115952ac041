//! The exchange of connections between the driver and the callers that borrow them.

use super::PoolDriver;
use crate::error::Error;
use crate::pool::call::UnfinishedCall;
use crate::pool::idle_connections::ReturnedConnection;

impl PoolDriver {
    /// Takes back every connection that no caller has borrowed.
    pub(super) fn take_back(&mut self) {
        let mut taken = Vec::new();
        self.mailbox.0.idle.take_back(&mut taken);
        for returned in taken {
            let _ = self.accept_returned(returned);
        }
    }

    /// Gives a returned connection to its worker. Returns the worker's index: a worker stays while its connection is
    /// borrowed.
    pub(super) fn accept_returned(&mut self, returned: ReturnedConnection) -> Option<usize> {
        let at = self.workers.iter().position(|it| it.number == returned.worker)?;
        if returned.usage.has_replied {
            self.starts.note_success();
        }
        self.workers.get_mut(at)?.accept_returned(returned);
        Some(at)
    }

    /// Completes a call that its caller has started.
    pub(super) fn finish(&mut self, unfinished: UnfinishedCall) {
        let UnfinishedCall { connection, call, outgoing, received } = unfinished;
        let Some(at) = self.accept_returned(connection) else { return };
        if let Some(worker) = self.workers.get_mut(at) {
            worker.adopt_call(call, outgoing);
        }
        let handled = received
            .and_then(|message| message.map_or(Ok(()), |message| self.handle_message(at, message)));
        self.fail_worker_on_error(at, handled);
    }

    /// Closes the connection of a worker after an error.
    pub(super) fn fail_worker_on_error(&mut self, at: usize, handled: Result<(), Error>) {
        if let (Err(error), Some(worker)) = (handled, self.workers.get_mut(at)) {
            worker.fail(error);
        }
    }

    /// Lets callers borrow the connection of a worker, if it is idle.
    pub(super) fn lend(&mut self, at: usize) {
        let nobody_waits = self.waiting.is_empty() && self.shutdown.is_none();
        let Some(worker) = self.workers.get_mut(at) else { return };
        let is_current = worker.version == self.files.version;
        if nobody_waits && self.options.allows_direct_calls() && is_current {
            worker.lend(&self.mailbox.0.idle, self.files.fresh_until());
        }
    }

    /// Prepares a worker for a wait. Returns false if there is something to do already.
    pub(super) fn prepare_wait(&mut self, at: usize, may_lend: bool) -> bool {
        if may_lend {
            self.lend(at);
        }
        let calls_wait = !self.waiting.is_empty();
        let Some(worker) = self.workers.get_mut(at) else { return true };
        worker.fall_asleep() && !worker.request_back(&self.mailbox.0.idle, calls_wait)
    }
}
