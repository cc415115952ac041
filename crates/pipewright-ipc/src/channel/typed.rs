//! Values as messages, by serde and postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Channel, Message};
use crate::error::{Error, ErrorKind};
use crate::wire::{Header, kind};

impl<S: Serialize, R> Channel<S, R> {
    /// Sends a value.
    ///
    /// # Errors
    /// [`Codec`](ErrorKind::Codec): it has no such form, and nothing was sent; and as
    /// [`send_bytes`](Self::send_bytes).
    pub fn send(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send(Header::new(kind::MESSAGE, 0), &buffer, until);
        self.core.scratch = buffer;
        sent
    }

    /// As [`send`](Self::send), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`send_bytes_async`](Self::send_bytes_async).
    ///
    /// # Errors
    /// As [`send`](Self::send); outside of a tokio runtime, `Unsupported`.
    #[cfg(feature = "tokio")]
    pub async fn send_async(&mut self, value: &S) -> Result<(), Error> {
        let buffer = self.encode(value)?;
        let until = self.core.until();
        let sent = self.core.send_async(Header::new(kind::MESSAGE, 0), &buffer, until).await;
        self.core.scratch = buffer;
        sent
    }

    fn encode(&mut self, value: &S) -> Result<Vec<u8>, Error> {
        let mut buffer = std::mem::take(&mut self.core.scratch);
        buffer.clear();
        postcard::to_extend(value, buffer).map_err(codec)
    }
}

impl<R: DeserializeOwned> Message<'_, R> {
    /// The value. It is made from a private copy, so nobody can change it half-way.
    ///
    /// # Errors
    /// [`Codec`](ErrorKind::Codec): the bytes are none of that type; and as [`bytes`](Self::bytes).
    pub fn value(self) -> Result<R, Error> {
        let (core, until) = self.core();
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = Message::<R>::new(core, until).read_into(&mut buffer);
        let value = read.and_then(|()| postcard::from_bytes(&buffer).map_err(codec));
        core.scratch = buffer;
        value
    }

    /// As [`value`](Self::value), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future throws the message away.
    ///
    /// # Errors
    /// As [`value`](Self::value); outside of a tokio runtime, `Unsupported`.
    #[cfg(feature = "tokio")]
    pub async fn value_async(self) -> Result<R, Error> {
        let (core, until) = self.core();
        let mut buffer = std::mem::take(&mut core.scratch);
        let read = Message::<R>::new(core, until).read_into_async(&mut buffer).await;
        let value = read.and_then(|()| postcard::from_bytes(&buffer).map_err(codec));
        core.scratch = buffer;
        value
    }
}

pub(crate) fn codec(error: postcard::Error) -> Error {
    Error::caused(ErrorKind::Codec, error)
}
