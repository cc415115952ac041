//! What is asked of a worker, and what comes of it.

use std::ops::Deref;
use std::time::Duration;

use pipewright::CancelToken;

use crate::error::{Error, WATCH_TOKEN};

/// What is asked of a worker.
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
    /// Those bytes, for any worker.
    pub fn new(body: impl Into<Vec<u8>>) -> Request {
        Request { body: body.into(), idempotent: false, timeout: None, cancel: None, window: 0 }
    }

    /// It may be done twice: if its worker is lost another one is asked, as long as nothing of the answer
    /// was handed out.
    pub fn idempotent(mut self) -> Request {
        self.idempotent = true;
        self
    }

    /// How long it may take, the wait for a worker included.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Ends it when the token is cancelled. Where it is already, no worker is asked.
    pub fn cancel(mut self, token: &CancelToken) -> Request {
        self.cancel = Some(token.clone());
        self
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// A token that nobody can wait for would end nothing.
    pub(super) fn watch_token(&self) -> Result<(), Error> {
        if let Some(token) = &self.cancel {
            token.wake().map_err(Error::cannot(WATCH_TOKEN))?;
        }
        Ok(())
    }

    /// Its answer may come in pieces, of which so many may be on their way at a time.
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

/// A worker's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(super) body: Vec<u8>,
    pub(super) worker: u64,
    pub(super) attempts: u32,
}

impl Reply {
    /// The bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Which worker of the pool answered, counted from 1.
    #[must_use]
    pub fn worker(&self) -> u64 {
        self.worker
    }

    /// How many workers were asked: more than one where the first were lost.
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
