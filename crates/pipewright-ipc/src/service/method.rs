//! The calls of a service as bytes: the number of the method, then its arguments.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::error::Error;
use crate::options::Options;
use crate::worker::{self, Answer, Serve};

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
