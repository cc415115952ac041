//! Values in requests and replies, by serde and postcard: feature `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Reply, Request};
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
        postcard::to_stdvec(value).map(Request::new).map_err(Error::codec)
    }
}

impl Reply {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        postcard::from_bytes(self).map_err(Error::codec)
    }
}
