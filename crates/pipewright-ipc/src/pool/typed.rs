//! Values in requests and replies, by serde and postcard: feature `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Reply, Request};
use crate::codec;
use crate::error::Error;

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
    pub fn of(value: &impl Serialize) -> Result<Request, Error> {
        codec::encode(value).map(Request::new)
    }
}

impl Reply {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        codec::decode(self)
    }
}
