//! Values in requests and answers, by serde and postcard: feature `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Answer, Call};
use crate::codec;
use crate::error::Error;

impl Call<'_> {
    /// Returns the value of the request.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        codec::decode(self.request())
    }

    /// Serializes a value as the answer: a handler returns `Call::answer(&value)`.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized.
    pub fn answer(value: &impl Serialize) -> Answer {
        Ok(codec::encode(value)?)
    }
}
