//! One call, as the worker sees it.

use super::desk::Desk;
use crate::error::{Error, ErrorKind};
use crate::wire::kind;

/// What comes of a call: bytes, or an error, of which the host is told the text.
pub type Answer = Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>;

/// Something that answers calls.
pub trait Serve {
    /// Answers a call.
    ///
    /// # Errors
    /// The text goes to whoever has called; the worker goes on.
    fn call(&mut self, call: &mut Call<'_>) -> Answer;

    /// Becomes as if it had just been started. `false`: it cannot, and is to be replaced.
    fn reset(&mut self) -> bool {
        false
    }
}

/// A function that answers calls.
pub(super) struct Handler<F>(pub(super) F);

impl<F: FnMut(&mut Call<'_>) -> Answer> Serve for Handler<F> {
    fn call(&mut self, call: &mut Call<'_>) -> Answer {
        (self.0)(call)
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub struct Call<'a> {
    desk: &'a mut Desk,
    id: u64,
    request: Vec<u8>,
}

impl Call<'_> {
    /// What is asked for.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// The same, to be kept.
    pub fn take_request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    /// Whether nobody wants the answer any more: what is returned then is thrown away. Never waits.
    /// `true` also where the host is gone.
    pub fn is_cancelled(&mut self) -> bool {
        self.desk.sort_what_is_there(self.id).is_err() || self.desk.is_cancelled(self.id)
    }

    /// Sends a piece of the answer. Waits until the host has taken enough of those before.
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): whoever has called takes the answer whole.
    /// [`Cancelled`](ErrorKind::Cancelled): nobody wants it any more. What befalls the connection.
    pub fn send_item(&mut self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match self.desk.credit(self.id) {
                None => {
                    let message = "the call takes its answer whole".to_owned();
                    return Err(Error::new(ErrorKind::Declined { message }));
                }
                Some(credit) if *credit > 0 => {
                    *credit -= 1;
                    return self.desk.send(kind::ITEM, self.id, bytes);
                }
                Some(_) => {}
            }
            self.desk.sort_next(self.id)?;
            if self.desk.is_cancelled(self.id) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
        }
    }

    /// Asks the host something, and waits for its answer.
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): it does not answer that.
    /// [`Cancelled`](ErrorKind::Cancelled): nobody wants the answer of this call any more. What befalls the
    /// connection.
    pub fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>, Error> {
        if self.desk.is_cancelled(self.id) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.desk.send(kind::ASK, self.id, question)?;
        loop {
            match self.desk.sort_next(self.id)? {
                Some((kind::ANSWER, bytes)) => return Ok(bytes),
                Some((_, bytes)) => {
                    let message = String::from_utf8_lossy(&bytes).into_owned();
                    return Err(Error::new(ErrorKind::Declined { message }));
                }
                None => {}
            }
            if self.desk.is_cancelled(self.id) {
                return Err(Error::new(ErrorKind::Cancelled));
            }
        }
    }
}

/// Waits for the next call, and has it answered.
pub(super) fn answer(desk: &mut Desk, service: &mut impl Serve) -> Result<(), Error> {
    let mut request = Vec::new();
    let (kind, id) = desk.next(&mut request)?;
    if kind == kind::RESET {
        let kind = if service.reset() { kind::RESET_DONE } else { kind::FAILED };
        return desk.end(kind, id, &[]);
    }
    desk.sort_what_is_there(id)?;
    if desk.is_cancelled(id) {
        return desk.end(kind::FAILED, id, b"cancelled before it was begun");
    }
    let mut call = Call { desk, id, request };
    let (kind, bytes) = match (service.call(&mut call), kind) {
        (Ok(bytes), kind::MESSAGE) => (kind::MESSAGE, bytes),
        (Ok(bytes), _) => (kind::REPLY, bytes),
        (Err(error), _) => (kind::FAILED, error.to_string().into_bytes()),
    };
    desk.end(kind, id, &bytes)
}
