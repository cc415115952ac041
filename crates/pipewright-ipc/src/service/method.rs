//! A call of a service, as its worker sees it: the method and its arguments as bytes, and its context and streams.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::error::Error;
use crate::options::Options;
use crate::worker::{self, Answer, Call, Serve};

/// A method of a service.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Its position in the trait.
    pub number: u32,
    /// A call may be retried on another worker.
    pub is_idempotent: bool,
}

/// Returns the request for a call.
pub(super) fn request(method: Method, arguments: &impl Serialize) -> Result<Vec<u8>, Error> {
    codec::encode(&(method.number, arguments))
}

/// Returns a value from all of the bytes.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match codec::decode_first(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Error::codec(postcard::Error::DeserializeBadEncoding)),
    }
}

/// Returns the number of the method in a request, and its arguments.
///
/// # Errors
/// The request is not that of a service.
pub fn method(request: &[u8]) -> Result<(u32, &[u8]), Error> {
    codec::decode_first(request)
}

/// Returns the arguments.
///
/// # Errors
/// The bytes are not values of these types.
pub fn arguments<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    decode(bytes)
}

/// Checks that there are no arguments.
///
/// # Errors
/// There are some.
pub fn no_arguments(bytes: &[u8]) -> Result<(), Error> {
    decode(bytes)
}

/// Returns the answer with a value.
///
/// # Errors
/// It cannot be serialized.
pub fn answer(value: &impl Serialize) -> Answer {
    Ok(codec::encode(value)?)
}

/// Returns the answer to a call of a method that the service does not have.
///
/// # Errors
/// Always.
pub fn unknown_method(number: u32) -> Answer {
    Err(format!("the service has no method {number}").into())
}

/// Answers the calls of the host as the worker of a service.
///
/// # Errors
/// Those of [`worker::run`].
pub fn serve(options: &Options, identity: &str, service: &mut impl Serve) -> Result<(), Error> {
    let options = Options { service: identity.to_owned(), ..options.clone() };
    worker::run(&options, service)
}

// The context and the streams of a call, as a method sees them.

/// A parameter that a method can have beside values.
pub trait FromCall<'a> {
    /// Creates the parameter.
    fn from_call(call: Call<'a>) -> Self;
}

/// Returns the parameter of a method for this call.
pub fn stream<'a, T: FromCall<'a>>(call: &'a mut Call<'_>) -> T {
    T::from_call(call.reborrow())
}

/// The call that a method answers.
pub struct Context<'a> {
    call: Call<'a>,
}

/// The call that a method answers, and items to its caller before the return value.
pub struct Output<'a, T> {
    call: Call<'a>,
    item: PhantomData<fn(T)>,
}

/// The call that a method answers, and items from its caller.
pub struct Input<'a, T> {
    call: Call<'a>,
    item: PhantomData<fn() -> T>,
}

/// The call that a method answers, with items in both directions: `In` from its caller, `Out` to it.
pub struct Duplex<'a, In, Out> {
    call: Call<'a>,
    items: PhantomData<fn(Out) -> In>,
}

impl Context<'_> {
    /// Returns true if the call was cancelled or the connection to the host has ended. The return value of the method
    /// is then discarded. Never waits.
    pub fn is_cancelled(&mut self) -> bool {
        self.call.is_cancelled()
    }
}

impl<T: Serialize> Output<'_, T> {
    /// Sends an item. Waits until the caller has taken enough of the earlier ones.
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorKind::Cancelled): the call was cancelled. The return value of the method is then
    /// discarded. [`Codec`](crate::ErrorKind::Codec). Errors of the connection.
    pub fn send(&mut self, item: &T) -> Result<(), Error> {
        send(&mut self.call, item)
    }

    /// Returns true if the call was cancelled, as [`Context::is_cancelled`] does.
    pub fn is_cancelled(&mut self) -> bool {
        self.call.is_cancelled()
    }
}

impl<T: DeserializeOwned> Input<'_, T> {
    /// Returns the next item, or `None` after the last one.
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorKind::Cancelled): the call was cancelled, also because the caller gave up before the
    /// last item. The return value of the method is then discarded. [`Codec`](crate::ErrorKind::Codec). Errors of the
    /// connection.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<T>, Error> {
        next(&mut self.call)
    }

    /// Returns true if the call was cancelled, as [`Context::is_cancelled`] does.
    pub fn is_cancelled(&mut self) -> bool {
        self.call.is_cancelled()
    }
}

impl<In: DeserializeOwned, Out: Serialize> Duplex<'_, In, Out> {
    /// Returns the next item, or `None` after the last one.
    ///
    /// # Errors
    /// Those of [`Input::next`].
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<In>, Error> {
        next(&mut self.call)
    }

    /// Sends an item. Waits until the caller has taken enough of the earlier ones.
    ///
    /// # Errors
    /// Those of [`Output::send`].
    pub fn send(&mut self, item: &Out) -> Result<(), Error> {
        send(&mut self.call, item)
    }

    /// Returns true if the call was cancelled, as [`Context::is_cancelled`] does.
    pub fn is_cancelled(&mut self) -> bool {
        self.call.is_cancelled()
    }
}

fn send(call: &mut Call<'_>, item: &impl Serialize) -> Result<(), Error> {
    call.send_item(&codec::encode(item)?)
}

fn next<T: DeserializeOwned>(call: &mut Call<'_>) -> Result<Option<T>, Error> {
    call.next_item()?.map(|item| decode(&item)).transpose()
}

impl<'a> FromCall<'a> for Context<'a> {
    fn from_call(call: Call<'a>) -> Self {
        Context { call }
    }
}

impl<'a, T> FromCall<'a> for Output<'a, T> {
    fn from_call(call: Call<'a>) -> Self {
        Output { call, item: PhantomData }
    }
}

impl<'a, T> FromCall<'a> for Input<'a, T> {
    fn from_call(call: Call<'a>) -> Self {
        Input { call, item: PhantomData }
    }
}

impl<'a, In, Out> FromCall<'a> for Duplex<'a, In, Out> {
    fn from_call(call: Call<'a>) -> Self {
        Duplex { call, items: PhantomData }
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Output<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Input<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

impl<In, Out> fmt::Debug for Duplex<'_, In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex").finish_non_exhaustive()
    }
}
