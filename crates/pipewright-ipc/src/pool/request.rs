//! Requests and replies.

use std::ops::Deref;
use std::time::Duration;

use pipewright::CancelToken;

use crate::error::{Error, WATCH_TOKEN};

/// A request to a worker.
///
/// ```
/// use std::time::Duration;
/// use pipewright_ipc::Request;
/// let request = Request::new("compile it").idempotent().timeout(Duration::from_secs(10));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is passed to a pool"]
pub struct Request {
    pub(super) body: Vec<u8>,
    pub(super) idempotent: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) window: u32,
}

impl Request {
    /// Creates a request with these bytes.
    pub fn new(body: impl Into<Vec<u8>>) -> Request {
        Request { body: body.into(), idempotent: false, timeout: None, cancel: None, window: 0 }
    }

    /// Allows the pool to retry the request on another worker if its worker ends, up to
    /// [`retries`](crate::PoolOptions::retries) times, as long as the caller has received no item and no question. A
    /// request that crashes every worker ends `retries` + 1 workers.
    pub fn idempotent(mut self) -> Request {
        self.idempotent = true;
        self
    }

    /// Sets the longest duration of the call, including the wait for a worker.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Cancels the call when the token is cancelled. If it already is, no worker gets the request.
    pub fn cancel(mut self, token: &CancelToken) -> Request {
        self.cancel = Some(token.clone());
        self
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns an error if a wait cannot include the token, which would then have no effect.
    pub(super) fn check_token(&self) -> Result<(), Error> {
        if let Some(token) = &self.cancel {
            token.wake().map_err(Error::cannot(WATCH_TOKEN))?;
        }
        Ok(())
    }

    /// Allows the worker to [send items](crate::worker::Call::send_item) before its reply: at most `window` of them
    /// that the caller has not taken yet.
    pub fn in_pieces(mut self, window: u32) -> Request {
        self.window = window;
        self
    }
}

impl From<Vec<u8>> for Request {
    fn from(body: Vec<u8>) -> Request {
        Request::new(body)
    }
}

impl From<&[u8]> for Request {
    fn from(body: &[u8]) -> Request {
        Request::new(body)
    }
}

impl<const COUNT: usize> From<&[u8; COUNT]> for Request {
    fn from(body: &[u8; COUNT]) -> Request {
        Request::new(body)
    }
}

impl From<&str> for Request {
    fn from(body: &str) -> Request {
        Request::new(body)
    }
}

impl From<String> for Request {
    fn from(body: String) -> Request {
        Request::new(body)
    }
}

/// The reply of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) worker: u64,
    pub(super) attempts: u32,
}

impl Reply {
    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Returns the number of the worker in the pool, from 1.
    #[must_use]
    pub fn worker(&self) -> u64 {
        self.worker
    }

    /// Returns the number of workers that got the request: more than one if it was [retried](Request::idempotent).
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.body
    }
}
