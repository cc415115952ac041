//! A call: its request and its reply, its events and items, and its state before a worker has answered it.

use std::collections::VecDeque;
use std::mem;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pipewright::CancelToken;

use crate::error::{Error, ErrorKind, WATCH_TOKEN};

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

// Values in requests and replies, by serde and postcard.

#[cfg(feature = "serde")]
impl Request {
    /// Creates a request with this value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized.
    ///
    /// ```
    /// use pipewright_ipc::Request;
    /// let request = Request::of(&(1_u32, "two"))?.idempotent();
    /// # Ok::<(), pipewright_ipc::Error>(())
    /// ```
    pub fn of(value: &impl serde::Serialize) -> Result<Request, Error> {
        crate::codec::encode(value).map(Request::new)
    }
}

#[cfg(feature = "serde")]
impl Reply {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        crate::codec::decode(self)
    }
}

// A call in the driver of a pool.

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

    /// Reports an item of the reply or a question of the worker to the caller.
    pub(super) fn report(&mut self, event: QueuedEvent) {
        self.has_reported = true;
        self.events.push(event);
    }

    /// Ends the call with this result.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        if let Some(items) = &self.items {
            items.close();
        }
        self.events.push(QueuedEvent::End(result));
    }
}

impl Drop for QueuedCall {
    /// Ends the call: a caller must not wait forever, even if the driver panics.
    fn drop(&mut self) {
        self.end(Err(Error::new(ErrorKind::ShutDown)));
    }
}

/// Returns true if the token is cancelled. Clears its wake-up if that was for a signal to another child.
pub(super) fn is_cancelled(token: &CancelToken) -> bool {
    let is_cancelled = token.is_cancelled();
    if !is_cancelled {
        token.take_signals();
    }
    is_cancelled
}

// The events of one call: the driver adds them, the caller takes them.

/// The events that the caller has not taken yet.
#[derive(Debug, Default)]
pub(super) struct EventQueue(Mutex<EventState>);

#[derive(Debug, Default)]
struct EventState {
    events: VecDeque<QueuedEvent>,
    /// The caller that waits.
    waker: Option<Waker>,
    /// The last event was added.
    ended: bool,
}

/// An event of a call.
#[derive(Debug)]
pub(super) enum QueuedEvent {
    Item(Vec<u8>),
    Question(Vec<u8>),
    End(Result<Reply, Error>),
}

impl EventQueue {
    fn state(&self) -> MutexGuard<'_, EventState> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. The last one is the end: later ones are ignored.
    fn push(&self, event: QueuedEvent) {
        let waker = {
            let mut state = self.state();
            if state.ended {
                return;
            }
            state.ended = matches!(event, QueuedEvent::End(_));
            state.events.push_back(event);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the next event, or registers the task to be woken for it.
    pub(super) fn poll(&self, context: &Context<'_>) -> Option<QueuedEvent> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Some(event);
        }
        if state.ended {
            return Some(QueuedEvent::End(Err(Error::new(ErrorKind::Closed))));
        }
        let is_same = state.waker.as_ref().is_some_and(|it| it.will_wake(context.waker()));
        if !is_same {
            state.waker = Some(context.waker().clone());
        }
        None
    }

    /// Ends the queue without an event: the caller is gone. Returns true if it had not ended.
    pub(super) fn close(&self) -> bool {
        !mem::replace(&mut self.state().ended, true)
    }
}

// The items that follow a request, from the caller to the worker.

/// The number of items that the worker of a call accepts now.
#[derive(Debug, Default)]
pub(super) struct ItemCredit(Mutex<CreditState>);

/// The most items of a call that are on their way to a worker, even if it accepts more.
const MAX_UNSENT: u32 = 64;

#[derive(Debug, Default)]
struct CreditState {
    credit: u32,
    /// The number of items that were taken from the caller and are not sent yet.
    unsent: u32,
    /// The caller has sent the last item.
    has_ended: bool,
    /// The call has ended.
    is_closed: bool,
    /// The sender that waits.
    waker: Option<Waker>,
}

impl ItemCredit {
    fn state(&self) -> MutexGuard<'_, CreditState> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts this many more items.
    pub(super) fn add(&self, more: u32) {
        self.change(|state| state.credit = state.credit.saturating_add(more));
    }

    /// Records that an item was sent.
    pub(super) fn note_sent(&self) {
        let waker = {
            let mut state = self.state();
            state.unsent = state.unsent.saturating_sub(1);
            // Half of them at a time: each wake-up costs more than an item.
            if state.unsent == MAX_UNSENT / 2 { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Accepts none any more: the call has ended.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut CreditState)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Records that the last item was sent.
    pub(super) fn note_end(&self) {
        self.state().has_ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Takes the credit for one item. Returns false if the call has ended.
    pub(super) fn poll_take(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(false);
        }
        if state.credit > 0 && state.unsent < MAX_UNSENT {
            state.credit -= 1;
            state.unsent += 1;
            return Poll::Ready(true);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
