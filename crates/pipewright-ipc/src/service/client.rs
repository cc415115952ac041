//! The client's side of a service.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pipewright::{CancelToken, Command};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::method::{Method, decode, request, value};
use crate::codec;
use crate::error::{Error, ErrorKind};
use crate::pool::{CallEvent, ItemSender, PendingCall, Pool, PoolOptions, Request};

/// The number of items that a worker may send ahead of its caller.
const WINDOW: u32 = 16;

/// Reads the return value of a method.
type Decode<R> = fn(Vec<u8>) -> Result<R, Error>;

/// A client of any service. The attribute generates a type around it.
#[derive(Debug, Clone)]
pub struct ServiceClient {
    pool: Arc<Pool>,
    timeout: Option<Duration>,
    cancel: Option<CancelToken>,
}

impl ServiceClient {
    /// Creates the pool of a service with that identity.
    ///
    /// # Errors
    /// Those of [`Pool::new`].
    pub fn new(
        command: Command,
        mut options: PoolOptions,
        identity: &str,
    ) -> Result<ServiceClient, Error> {
        options.channel.service = identity.to_owned();
        let pool = Arc::new(Pool::new(command, options)?);
        Ok(ServiceClient { pool, timeout: None, cancel: None })
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns a client whose calls take at most this long.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> ServiceClient {
        ServiceClient { timeout: Some(timeout), ..self.clone() }
    }

    /// Returns a client whose calls are cancelled with the token.
    #[must_use]
    pub fn cancel(&self, token: &CancelToken) -> ServiceClient {
        ServiceClient { cancel: Some(token.clone()), ..self.clone() }
    }

    /// Shuts the pool down, unless another client uses it.
    pub fn shut_down(self) {
        if let Some(pool) = Arc::into_inner(self.pool) {
            pool.shut_down();
        }
    }

    fn request(
        &self,
        method: Method,
        (bytes, arguments): (Vec<u8>, &impl Serialize),
    ) -> Result<Request, Error> {
        let (bytes, tail) = request(method, bytes, arguments)?;
        let mut built = Request::in_two(bytes, tail);
        if method.is_idempotent {
            built = built.idempotent();
        }
        if let Some(timeout) = self.timeout {
            built = built.timeout(timeout);
        }
        match &self.cancel {
            Some(token) => Ok(built.cancel(token)),
            None => Ok(built),
        }
    }

    /// Calls a method, with bytes that are not serialized, and waits for its value.
    ///
    /// # Errors
    /// Those of [`Pool::call`], and [`Codec`](ErrorKind::Codec).
    pub fn call<R>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
        decode: Decode<R>,
    ) -> Result<R, Error> {
        decode(self.pool.call(self.request(method, arguments)?)?.into_bytes())
    }

    /// Like [`call`](Self::call), for a task of any runtime.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub async fn call_async<R>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
        decode: Decode<R>,
    ) -> Result<R, Error> {
        decode(self.pool.call_async(self.request(method, arguments)?).await?.into_bytes())
    }

    /// Begins a call of a method without items.
    ///
    /// # Errors
    /// Those of [`Pool::begin`], and [`Codec`](ErrorKind::Codec).
    pub fn begin<R>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
        decode: Decode<R>,
    ) -> Result<PendingReply<R>, Error> {
        let call = self.pool.begin(self.request(method, arguments)?)?;
        Ok(PendingReply { call, decode })
    }

    /// Begins a call of a method that sends items.
    ///
    /// # Errors
    /// Those of [`Pool::begin`], and [`Codec`](ErrorKind::Codec).
    pub fn begin_output<T, R>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
    ) -> Result<Receiver<T, R>, Error> {
        let request = self.request(method, arguments)?.in_pieces(WINDOW);
        self.pool.begin(request).map(Receiver::new)
    }

    /// Begins a call of a method that takes items.
    ///
    /// # Errors
    /// Those of [`Pool::begin`], and [`Codec`](ErrorKind::Codec).
    pub fn begin_input<T, R: DeserializeOwned>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
    ) -> Result<(Sender<T>, PendingReply<R>), Error> {
        let (items, call) = self.pool.begin_with_items(self.request(method, arguments)?)?;
        Ok((Sender::new(items), PendingReply { call, decode: value }))
    }

    /// Begins a call of a method that takes and sends items.
    ///
    /// # Errors
    /// Those of [`Pool::begin`], and [`Codec`](ErrorKind::Codec).
    pub fn begin_duplex<In, Out, R>(
        &self,
        method: Method,
        arguments: (Vec<u8>, &impl Serialize),
    ) -> Result<(Sender<In>, Receiver<Out, R>), Error> {
        let request = self.request(method, arguments)?.in_pieces(WINDOW);
        let (items, call) = self.pool.begin_with_items(request)?;
        Ok((Sender::new(items), Receiver::new(call)))
    }
}

/// The sender of the items of a call.
///
/// # Drop
/// Cancels the call, unless it has ended or the sender was [finished](Self::finish).
#[must_use = "dropping it cancels the call"]
pub struct Sender<T> {
    items: ItemSender,
    item: PhantomData<fn(T)>,
}

impl<T> Sender<T> {
    fn new(items: ItemSender) -> Sender<T> {
        Sender { items, item: PhantomData }
    }

    /// Ends the items. The worker finds the end after the last one.
    pub fn finish(self) {
        self.items.finish();
    }
}

impl<T: Serialize> Sender<T> {
    /// Sends an item. Waits until the worker accepts one.
    ///
    /// # Errors
    /// [`CallEnded`](ErrorKind::CallEnded): the result of the call has the reason. [`Codec`](ErrorKind::Codec).
    pub fn send(&mut self, item: &T) -> Result<(), Error> {
        self.items.send(codec::encode(item)?)
    }

    /// Like [`send`](Self::send), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future sends nothing.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_async(&mut self, item: &T) -> Result<(), Error> {
        self.items.send_async(codec::encode(item)?).await
    }
}

/// The return value of a call in progress: [`wait`](Self::wait), or `.await`.
///
/// # Drop
/// Cancels the call.
#[must_use = "dropping it cancels the call"]
pub struct PendingReply<R> {
    call: PendingCall,
    decode: Decode<R>,
}

impl<R> PendingReply<R> {
    /// Waits for the value.
    ///
    /// # Errors
    /// Those of [`Pool::call`]; [`Codec`](ErrorKind::Codec).
    pub fn wait(self) -> Result<R, Error> {
        (self.decode)(self.call.wait()?.into_bytes())
    }
}

impl<R> Future for PendingReply<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R, Error>> {
        let reply = ready!(Pin::new(&mut self.call).poll(context));
        Poll::Ready(reply.and_then(|reply| (self.decode)(reply.into_bytes())))
    }
}

/// The items of a call in progress, and then its return value.
///
/// # Drop
/// Cancels the call, unless it has ended.
#[must_use = "dropping it cancels the call"]
pub struct Receiver<T, R> {
    call: PendingCall,
    /// The return value, which was received with the end of the items.
    reply: Option<Vec<u8>>,
    types: PhantomData<fn() -> (T, R)>,
}

impl<T, R> Receiver<T, R> {
    fn new(call: PendingCall) -> Receiver<T, R> {
        Receiver { call, reply: None, types: PhantomData }
    }

    /// Takes an event. Returns the bytes of an item.
    fn take(&mut self, event: CallEvent) -> Option<Vec<u8>> {
        match event {
            CallEvent::Item(item) => return Some(item),
            CallEvent::Reply(reply) => self.reply = Some(reply.into_bytes()),
            // Methods ask no questions. The drop declines it.
            CallEvent::Question(_) => {}
        }
        None
    }
}

impl<T: DeserializeOwned, R: DeserializeOwned> Receiver<T, R> {
    /// Waits for the next item. Returns `None` after the last one.
    ///
    /// # Errors
    /// Those of [`Pool::call`]; [`Codec`](ErrorKind::Codec).
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<T>, Error> {
        while self.reply.is_none() {
            let event = self.call.next()?;
            if let Some(item) = self.take(event) {
                return decode(&item).map(Some);
            }
        }
        Ok(None)
    }

    /// Like [`next`](Self::next), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<Option<T>, Error> {
        while self.reply.is_none() {
            let event = self.call.next_async().await?;
            if let Some(item) = self.take(event) {
                return decode(&item).map(Some);
            }
        }
        Ok(None)
    }

    /// Waits for the return value. Discards the remaining items.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn finish(mut self) -> Result<R, Error> {
        while self.reply.is_none() {
            let event = self.call.next()?;
            self.take(event);
        }
        self.decode_reply()
    }

    /// Like [`finish`](Self::finish), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future cancels the call.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub async fn finish_async(mut self) -> Result<R, Error> {
        while self.reply.is_none() {
            let event = self.call.next_async().await?;
            self.take(event);
        }
        self.decode_reply()
    }

    fn decode_reply(self) -> Result<R, Error> {
        let reply = self.reply.ok_or_else(|| Error::new(ErrorKind::Closed))?;
        decode(&reply)
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for PendingReply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReply").field("call", &self.call.id()).finish_non_exhaustive()
    }
}

impl<T, R> fmt::Debug for Receiver<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("call", &self.call.id()).finish_non_exhaustive()
    }
}
