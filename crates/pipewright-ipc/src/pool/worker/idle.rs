//! A worker whose connection a caller may borrow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::wake::Wake;

use super::{ActiveCall, ConnectionState, Worker, WorkerPhase};
use crate::pool::call::QueuedCall;
use crate::pool::connection::OutgoingMessage;
use crate::pool::idle_connections::{BorrowedConnection, IdleConnections, ReturnedConnection};

impl Worker {
    /// Returns true if the worker can answer calls, even while a caller has its connection.
    pub(in crate::pool) fn is_in_service(&self) -> bool {
        self.phase == WorkerPhase::Serving && self.fault.is_none() && !self.exited
    }

    /// Returns true if callers have, or may borrow, the connection.
    pub(in crate::pool) fn is_lent(&self) -> bool {
        matches!(self.connection, ConnectionState::Lent)
    }

    /// Adds the connection of an idle worker to the idle ones. Callers may borrow it until that time.
    pub(in crate::pool) fn lend(&mut self, idle: &IdleConnections, until: Option<Instant>) {
        let is_idle = self.calls.is_empty() && self.outgoing.is_empty() && !self.is_due;
        if !is_idle || !self.is_serving() {
            return;
        }
        let Some(wake) = self.wake() else { return };
        self.connection = match std::mem::replace(&mut self.connection, ConnectionState::Lent) {
            ConnectionState::Open(connection) if connection.is_quiet() => {
                let (worker, jobs) = (self.number, Arc::clone(&self.jobs));
                let connection = BorrowedConnection { worker, connection, wake, jobs };
                idle.add(connection, until, self.last_used);
                ConnectionState::Lent
            }
            connection => connection,
        };
    }

    /// Returns the handle that wakes a borrower. `None`: this process has no room for another handle.
    fn wake(&mut self) -> Option<Arc<Wake>> {
        if self.wake.is_none() {
            self.wake = Wake::new().ok().map(Arc::new);
        }
        self.wake.clone()
    }

    /// Takes the connection back.
    pub(in crate::pool) fn accept_returned(&mut self, returned: ReturnedConnection) {
        self.last_used = self.last_used.max(returned.usage.last);
        self.connection = ConnectionState::Open(returned.connection);
        // The connection of a worker that has exited contains its last messages.
        self.is_due |= self.exited;
    }

    /// Takes over a call that its caller has started.
    pub(in crate::pool) fn adopt_call(
        &mut self,
        mut call: QueuedCall,
        mut outgoing: VecDeque<OutgoingMessage>,
    ) {
        call.attempts = 1;
        outgoing.append(&mut self.outgoing);
        self.outgoing = outgoing;
        self.calls.push(ActiveCall::new(call));
        self.is_due = true;
    }

    /// Requests the connection if it is needed: the worker has exited, or calls wait. Returns true if no caller has
    /// borrowed it, so that it can be taken back at once.
    pub(in crate::pool) fn request_back(&self, idle: &IdleConnections, calls_wait: bool) -> bool {
        self.is_lent() && (self.exited || calls_wait) && idle.request(self.number, self.exited)
    }
}
