//! A call in the driver of a pool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pipewright::CancelToken;

use super::connection::OutgoingMessage;
use super::events::EventQueue;
use super::idle_connections::ReturnedConnection;
use super::items::ItemCredit;
use super::request::{Reply, Request};
use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind};

/// A call without a reply.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) id: u64,
    body: Arc<Vec<u8>>,
    pub(super) idempotent: bool,
    pub(super) until: Option<Instant>,
    pub(super) token: Option<CancelToken>,
    /// The number of items that the worker may send ahead of the caller. 0: the reply comes as a whole.
    pub(super) window: u32,
    /// The number of workers that had the call.
    pub(super) attempts: u32,
    /// The number of workers that ended before the call was sent to them.
    pub(super) returns: u32,
    /// The caller has seen an item or a question, so the call cannot start again.
    pub(super) has_reported: bool,
    events: Arc<EventQueue>,
    /// The items that follow the request. `None`: the request comes as a whole.
    pub(super) items: Option<Arc<ItemCredit>>,
}

impl QueuedCall {
    pub(super) fn new(
        id: u64,
        request: Request,
        events: Arc<EventQueue>,
        items: Option<Arc<ItemCredit>>,
    ) -> QueuedCall {
        let Request { body, idempotent, timeout, cancel, window } = request;
        QueuedCall {
            id,
            body: Arc::new(body),
            // Nothing keeps the items that a worker has received.
            idempotent: idempotent && items.is_none(),
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            token: cancel,
            window,
            attempts: 0,
            returns: 0,
            has_reported: false,
            events,
            items,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns the request, for one more worker.
    pub(super) fn body(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.body)
    }

    /// Reports an item of the reply to the caller.
    pub(super) fn report_item(&mut self, bytes: Vec<u8>) {
        self.has_reported = true;
        self.events.push_item(bytes);
    }

    /// Reports a question of the worker to the caller.
    pub(super) fn report_question(&mut self, bytes: Vec<u8>) {
        self.has_reported = true;
        self.events.push_question(bytes);
    }

    /// Ends the call with this result.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        if let Some(items) = &self.items {
            items.close();
        }
        self.events.end(result);
    }
}

impl Drop for QueuedCall {
    /// Ends the call, so that no caller waits forever, whatever happens to the driver.
    fn drop(&mut self) {
        self.end(Err(Error::new(ErrorKind::ShutDown)));
    }
}

/// A call that its caller started on a borrowed connection, and that the driver has to complete.
#[derive(Debug)]
pub(super) struct UnfinishedCall {
    pub(super) connection: ReturnedConnection,
    pub(super) call: QueuedCall,
    /// The call itself, if it is not sent completely.
    pub(super) outgoing: VecDeque<OutgoingMessage>,
    /// A message that is not the reply, or the error of the connection.
    pub(super) received: Result<Option<RawMessage>, Error>,
}

/// Returns true if the token is cancelled. Clears its wake-up if that was for a signal to another child.
pub(super) fn is_cancelled(token: &CancelToken) -> bool {
    let is_cancelled = token.is_cancelled();
    if !is_cancelled {
        token.take_signals();
    }
    is_cancelled
}
