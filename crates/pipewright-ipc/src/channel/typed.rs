//! Values as messages, by serde and postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Channel, Message};
use crate::codec;
use crate::error::Error;
use crate::wire::kind;

impl<S: Serialize, R> Channel<S, R> {
    /// Sends a value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized, and nothing was sent. Those of
    /// [`send_bytes`](Self::send_bytes).
    pub fn send(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send((kind::MESSAGE, 0), buffer.as_slice(), until);
        self.core.scratch = buffer;
        sent
    }

    /// Like [`send`](Self::send), without blocking a thread.
    ///
    /// # Cancellation
    /// As for [`send_bytes_async`](Self::send_bytes_async).
    ///
    /// # Errors
    /// Those of [`send`](Self::send); `Unsupported` outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn send_async(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send_async(buffer.as_slice().into(), until).await;
        self.core.scratch = buffer;
        sent
    }

    fn encode(&mut self, value: &S) -> Result<Vec<u8>, Error> {
        let mut buffer = std::mem::take(&mut self.core.scratch);
        buffer.clear();
        codec::encode_into(value, buffer)
    }
}

impl<R: DeserializeOwned> Message<'_, R> {
    /// Returns the value. Deserializes a private copy, so that the other side cannot change it meanwhile.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type. Those of
    /// [`bytes`](Self::bytes).
    pub fn value(self) -> Result<R, Error> {
        let (core, until) = self.core();
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = Message::<R>::new(core, until).read_into(&mut buffer);
        let value = read.and_then(|()| codec::decode(&buffer));
        core.scratch = buffer;
        value
    }

    /// Like [`value`](Self::value), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the message.
    ///
    /// # Errors
    /// Those of [`value`](Self::value); `Unsupported` outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn value_async(self) -> Result<R, Error> {
        let (core, until) = self.core();
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = Message::<R>::new(core, until).read_into_async(&mut buffer).await;
        let value = read.and_then(|()| codec::decode(&buffer));
        core.scratch = buffer;
        value
    }
}
