//! A call, as the worker sees it.

use super::call_receiver::CallReceiver;
use crate::error::{Error, ErrorKind};
use crate::wire::kind;

/// The answer to a call: bytes, or an error whose text the host receives.
pub type Answer = Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>;

/// A service that answers calls.
pub trait Serve {
    /// Answers a call.
    ///
    /// # Errors
    /// The caller receives the text of the error. The worker continues with the next call.
    fn call(&mut self, call: &mut Call<'_>) -> Answer;

    /// Resets the worker to its state right after the start, so that no call can affect a later one
    /// ([`PoolOptions::reset_timeout`](crate::PoolOptions::reset_timeout)). Returns false if it cannot: the pool then
    /// replaces the worker.
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
    call_receiver: &'a mut CallReceiver,
    id: u64,
    request: Vec<u8>,
}

impl Call<'_> {
    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the same call, for a value that owns it.
    #[cfg(feature = "service")]
    pub(crate) fn reborrow(&mut self) -> Call<'_> {
        let request = self.take_request();
        Call { call_receiver: &mut *self.call_receiver, id: self.id, request }
    }

    /// Takes the request, without a copy.
    pub fn take_request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    /// Returns true if the call was cancelled or the connection to the host has ended. The answer is then discarded.
    /// Never waits.
    pub fn is_cancelled(&mut self) -> bool {
        self.call_receiver.receive_available(self.id).is_err()
            || self.call_receiver.is_cancelled(self.id)
    }

    /// Sends an item: a part of the reply that precedes the answer. Waits until the caller has taken enough of the earlier
    /// ones ([`Request::in_pieces`](crate::Request::in_pieces)).
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): the caller accepts no items. [`Cancelled`](ErrorKind::Cancelled): the call was
    /// cancelled. Errors of the connection.
    pub fn send_item(&mut self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match self.call_receiver.credit(self.id) {
                None => {
                    return Err(Error::declined(b"the caller accepts no items"));
                }
                Some(credit) if *credit > 0 => {
                    *credit -= 1;
                    return self.call_receiver.send(kind::ITEM, self.id, bytes);
                }
                Some(_) => {}
            }
            self.wait_for_next()?;
        }
    }

    /// Waits for the next message about the call. Not after its cancellation: nothing may follow that.
    fn wait_for_next(&mut self) -> Result<Option<(u8, Vec<u8>)>, Error> {
        if self.call_receiver.is_cancelled(self.id) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.call_receiver.receive_next(self.id)
    }

    /// Returns the next item of the request, or `None` after the last one and for a request that comes as a whole
    /// ([`Pool::begin_with_items`](crate::Pool::begin_with_items)). At most 16 items are on their way.
    ///
    /// # Errors
    /// [`Cancelled`](ErrorKind::Cancelled): the call was cancelled, also because the caller gave up before the last item.
    /// Errors of the connection.
    pub fn next_item(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let Some(input) = self.call_receiver.input() else { return Ok(None) };
            let (item, credit, has_ended) = (input.take(), input.new_credit(), input.has_ended);
            if let Some(more) = credit {
                self.call_receiver.send(kind::CREDIT, self.id, &more.to_le_bytes())?;
            }
            if item.is_some() || has_ended {
                return Ok(item);
            }
            self.wait_for_next()?;
        }
    }

    /// Asks the caller a question, and waits for the answer.
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): the caller declines the question. [`Cancelled`](ErrorKind::Cancelled): the
    /// call was cancelled. Errors of the connection.
    pub fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>, Error> {
        if self.call_receiver.is_cancelled(self.id) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.call_receiver.send(kind::ASK, self.id, question)?;
        loop {
            match self.wait_for_next()? {
                Some((kind::ANSWER, bytes)) => return Ok(bytes),
                Some((_, reason)) => return Err(Error::declined(&reason)),
                None => {}
            }
        }
    }
}

/// Waits for the next call, and answers it.
pub(super) fn answer_next(
    call_receiver: &mut CallReceiver,
    service: &mut impl Serve,
) -> Result<(), Error> {
    let mut request = Vec::new();
    let (kind, id) = call_receiver.next(&mut request)?;
    if kind == kind::RESET {
        let kind = if service.reset() { kind::RESET_DONE } else { kind::FAILED };
        return call_receiver.end(kind, id, &[]);
    }
    if kind == kind::OPEN_CALL {
        // Before the next message: it may be the end of the items.
        call_receiver.begin_input(id);
    }
    call_receiver.receive_available(id)?;
    if call_receiver.is_cancelled(id) {
        return call_receiver.end(kind::FAILED, id, b"cancelled before the call started");
    }
    let mut call = Call { call_receiver, id, request };
    let (kind, bytes) = match (service.call(&mut call), kind) {
        (Ok(bytes), kind::MESSAGE) => (kind::MESSAGE, bytes),
        (Ok(bytes), _) => (kind::REPLY, bytes),
        (Err(error), _) => (kind::FAILED, error.to_string().into_bytes()),
    };
    call_receiver.end(kind, id, &bytes)
}
