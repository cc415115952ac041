//! A call of a service, as its worker sees it: the method and its arguments as bytes, and its context and streams.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

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

/// The length of the number that ends a request.
const LENGTH_BYTES: usize = 4;

/// The most bytes that are copied so that what follows them needs no frame of its own.
const COPIED_BYTES: usize = 4 << 10;

/// Returns the two parts of the request for a call: the bytes that a method takes as they are, and the number of the
/// method with its other arguments and the length of those. What is small comes last, so that neither side copies the
/// bytes.
pub(super) fn request(
    method: Method,
    mut bytes: Vec<u8>,
    arguments: &impl Serialize,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let mut tail = codec::encode(&(method.number, arguments))?;
    let length = u32::try_from(tail.len());
    let length = length.map_err(|_| Error::codec(postcard::Error::SerializeBufferFull))?;
    tail.extend_from_slice(&length.to_le_bytes());
    if bytes.is_empty() {
        return Ok((tail, bytes));
    }
    if bytes.len() <= COPIED_BYTES || bytes.capacity() - bytes.len() >= tail.len() {
        bytes.append(&mut tail);
    }
    Ok((bytes, tail))
}

/// Returns a value from all of the bytes.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    match codec::decode_first(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Error::codec(postcard::Error::DeserializeBadEncoding)),
    }
}

/// A request that a worker has received.
#[derive(Debug)]
pub struct Received {
    request: Vec<u8>,
    /// The number of bytes that the method takes as they are.
    bytes: usize,
    /// The place of the serialized arguments.
    arguments: Range<usize>,
    /// The number of the method.
    pub number: u32,
}

impl Received {
    /// Finds the parts of a request.
    ///
    /// # Errors
    /// The request is not that of a service.
    pub fn new(request: Vec<u8>) -> Result<Received, Error> {
        let wrong = || Error::codec(postcard::Error::DeserializeUnexpectedEnd);
        let (rest, length) = request.split_last_chunk::<LENGTH_BYTES>().ok_or_else(wrong)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| wrong())?;
        let bytes = rest.len().checked_sub(length).ok_or_else(wrong)?;
        let (number, left) = codec::decode_first(rest.get(bytes..).unwrap_or_default())?;
        let arguments = rest.len() - left.len()..rest.len();
        Ok(Received { bytes, arguments, number, request })
    }

    /// Returns the serialized arguments.
    ///
    /// # Errors
    /// The bytes are not values of these types.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decode(self.request.get(self.arguments.clone()).unwrap_or_default())
    }

    /// Checks that the request has no bytes for a method that takes none as they are.
    ///
    /// # Errors
    /// It has some.
    pub fn check_no_bytes(&self) -> Result<(), Error> {
        match self.bytes {
            0 => Ok(()),
            _ => Err(Error::codec(postcard::Error::DeserializeBadEncoding)),
        }
    }

    /// Returns the bytes that the method takes as they are, without a copy.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.request.truncate(self.bytes);
        self.request
    }
}

/// Returns the answer with a value.
///
/// # Errors
/// It cannot be serialized.
pub fn answer(value: &impl Serialize) -> Answer {
    Ok(codec::encode(value)?)
}

/// Returns the answer with bytes, without a copy.
///
/// # Errors
/// None.
pub fn answer_bytes(value: impl Into<Vec<u8>>) -> Answer {
    Ok(value.into())
}

/// Returns the answer with bytes or with an error of the method. Its last byte says which.
///
/// # Errors
/// The error cannot be serialized.
pub fn answer_result<E: Serialize>(value: Result<impl Into<Vec<u8>>, E>) -> Answer {
    let (mut answer, last) = match value {
        Ok(bytes) => (bytes.into(), 0),
        Err(error) => (codec::encode(&error)?, 1),
    };
    answer.reserve_exact(1);
    answer.push(last);
    Ok(answer)
}

/// Returns the value of an answer.
///
/// # Errors
/// The answer has another type.
pub fn value<T: DeserializeOwned>(answer: Vec<u8>) -> Result<T, Error> {
    decode(&answer)
}

/// Returns the bytes of an answer, without a copy.
///
/// # Errors
/// None.
pub fn bytes<T: From<Vec<u8>>>(answer: Vec<u8>) -> Result<T, Error> {
    Ok(T::from(answer))
}

/// Returns the bytes or the error of an answer.
///
/// # Errors
/// The answer has another type.
pub fn result<T: From<Vec<u8>>, E: DeserializeOwned>(
    mut answer: Vec<u8>,
) -> Result<Result<T, E>, Error> {
    match answer.pop() {
        Some(0) => Ok(Ok(T::from(answer))),
        Some(1) => decode(&answer).map(Err),
        _ => Err(Error::codec(postcard::Error::DeserializeBadEncoding)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Method = Method { number: 300, is_idempotent: false };

    /// Returns a request as a worker receives it.
    fn received(method: Method, bytes: Vec<u8>, arguments: &impl Serialize) -> Vec<u8> {
        let (mut bytes, tail) = request(method, bytes, arguments).unwrap();
        bytes.extend(tail);
        bytes
    }

    #[test]
    fn bytes_are_the_same_allocation_on_both_sides() {
        // With room for what follows, so that nothing has to be moved at all.
        let mut bytes = Vec::with_capacity(10_000);
        bytes.extend([7; 9_000]);
        let place = bytes.as_ptr();
        let (request, tail) = request(METHOD, bytes, &(1_u8, "text")).unwrap();
        assert!(request.as_ptr() == place && tail.is_empty());
        let received = Received::new(request).unwrap();
        assert_eq!(received.number, 300);
        assert_eq!(received.arguments::<(u8, String)>().unwrap(), (1, "text".to_owned()));
        assert!(received.check_no_bytes().is_err());
        let bytes = received.into_bytes();
        assert!(bytes == [7; 9_000] && bytes.as_ptr() == place);
        let answer = answer_result::<()>(Ok(bytes)).unwrap();
        let Ok(bytes) = result::<Vec<u8>, ()>(answer).unwrap() else { panic!() };
        assert!(bytes.len() == 9_000 && bytes.as_ptr() == place);
    }

    #[test]
    fn a_vector_without_room_does_not_grow_and_what_follows_is_sent_behind_it() {
        let full = || vec![7; 9_000].into_boxed_slice().into_vec();
        let bytes = full();
        let place = bytes.as_ptr();
        let (request, tail) = request(METHOD, bytes, &(1_u8, "text")).unwrap();
        assert!(request.as_ptr() == place && request.len() == 9_000 && !tail.is_empty());
        assert!(
            Received::new(received(METHOD, full(), &(1_u8, "text"))).unwrap().into_bytes()
                == full()
        );
        let answer = answer_result::<()>(Ok(full())).unwrap();
        assert_eq!(answer.capacity(), 9_001);
        assert!(matches!(result::<Vec<u8>, ()>(answer), Ok(Ok(bytes)) if bytes == full()));
        // An answer of bytes alone has nothing behind them.
        let bytes = full();
        let place = bytes.as_ptr();
        let answer = answer_bytes(bytes).unwrap();
        assert_eq!(answer.as_ptr(), place);
    }

    #[test]
    fn a_request_that_is_none_of_a_service_is_an_error() {
        let good = received(METHOD, vec![1, 2], &(5_u8,));
        let read =
            |request: &[u8]| Received::new(request.to_vec()).and_then(|it| it.arguments::<(u8,)>());
        assert_eq!(read(&good).unwrap(), (5,));
        for end in 0..good.len() {
            assert!(read(&good[..end]).is_err(), "{end}");
        }
        // A length beyond the request, and one that begins in the middle of a number.
        assert!(read(&[1, 2, 255, 0, 0, 0]).is_err());
        assert!(read(&[0x80, 1, 0, 0, 0]).is_err());
        assert!(result::<Vec<u8>, ()>(Vec::new()).is_err());
        assert!(result::<Vec<u8>, ()>(vec![2]).is_err());
    }
}
