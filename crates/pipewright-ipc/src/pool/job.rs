//! A call, as the driver of a pool has it.

use std::sync::Arc;
use std::time::Instant;

use pipewright::CancelToken;

use super::pending::Cell;
use super::request::Reply;
use crate::error::Error;

/// A call that is to be answered.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u64,
    body: Arc<Vec<u8>>,
    pub(super) idempotent: bool,
    pub(super) until: Option<Instant>,
    pub(super) token: Option<CancelToken>,
    /// How many pieces of the answer may be on their way; 0: it comes whole.
    pub(super) window: u32,
    /// How many workers had it.
    pub(super) attempts: u32,
    /// Part of the answer was handed out, or the caller was asked something: it cannot be begun anew.
    pub(super) has_spoken: bool,
    cell: Arc<Cell>,
}

impl Job {
    pub(super) fn new(id: u64, request: super::Request, cell: Arc<Cell>) -> Job {
        let super::Request { body, idempotent, timeout, cancel, window } = request;
        Job {
            id,
            body: Arc::new(body),
            idempotent,
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            token: cancel,
            window,
            attempts: 0,
            has_spoken: false,
            cell,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// What is asked, for one more worker.
    pub(super) fn body(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.body)
    }

    /// Hands out a piece of the answer.
    pub(super) fn item(&mut self, bytes: Vec<u8>) {
        self.has_spoken = true;
        self.cell.item(bytes);
    }

    /// Passes a question of the worker on.
    pub(super) fn ask(&mut self, bytes: Vec<u8>) {
        self.has_spoken = true;
        self.cell.ask(bytes);
    }

    /// Hands out what has become of it.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        self.cell.end(result);
    }
}

impl Drop for Job {
    /// Nobody waits for ever, whatever becomes of the driver.
    fn drop(&mut self) {
        self.cell.end(Err(Error::new(crate::ErrorKind::ShutDown)));
    }
}
