//! Values as questions and answers, by serde and postcard: feature `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Reply, Request};
use crate::channel::codec;
use crate::error::Error;
use crate::worker::{Answer, Call};

impl Request {
    /// A value, for any worker.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): it has no such form.
    ///
    /// ```
    /// use pipewright_ipc::Request;
    /// let request = Request::of(&(1_u32, "two"))?.idempotent();
    /// # Ok::<(), pipewright_ipc::Error>(())
    /// ```
    pub fn of(value: &impl Serialize) -> Result<Request, Error> {
        postcard::to_stdvec(value).map(Request::new).map_err(codec)
    }
}

impl Reply {
    /// The value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are none of that type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        postcard::from_bytes(self).map_err(codec)
    }
}

impl Call<'_> {
    /// The value that came as the question.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are none of that type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        postcard::from_bytes(self.request()).map_err(codec)
    }

    /// That value as the answer: `Call::answer(&value)` is what a handler returns.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): it has no such form.
    pub fn answer(value: &impl Serialize) -> Answer {
        Ok(postcard::to_stdvec(value).map_err(codec)?)
    }
}
