//! The connection to a worker, which carries calls. The driver or a caller waits for the replies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pipewright_os::channel::handle_channel::drop_elsewhere;

use crate::connection::{Body, Connection, RawMessage, Reassembly, Sending, Spin, StepResult};
use crate::error::Error;
use crate::wire;

/// A connection, with the message that is arriving and the spin before a wait.
#[derive(Debug)]
pub(super) struct WorkerConnection {
    pub(super) inner: Connection,
    incoming: Reassembly,
    spin: Spin,
}

/// A message to a worker, with its state.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) sending: Sending,
    body: Arc<Vec<u8>>,
}

impl OutgoingMessage {
    pub(super) fn new(kind: u8, id: u64, body: Arc<Vec<u8>>) -> OutgoingMessage {
        OutgoingMessage { sending: Sending::new(kind, id), body }
    }

    /// Returns the number that the message contains.
    pub(super) fn number(&self) -> u32 {
        wire::credit(&self.body)
    }

    /// Adds to the number that the message contains.
    pub(super) fn add(&mut self, more: u32) {
        self.body = Arc::new(self.number().saturating_add(more).to_le_bytes().to_vec());
    }
}

impl WorkerConnection {
    pub(super) fn new(mut inner: Connection, max_spin: Duration) -> WorkerConnection {
        // Calls carry none, and closing what a worker sends may block.
        inner.end.refuse_handles();
        WorkerConnection { inner, incoming: Reassembly::default(), spin: Spin::new(max_spin) }
    }

    /// Sends as many of the messages as there is room for, in order, and reports those that are sent completely.
    /// Returns true if all are sent and flushed.
    pub(super) fn send(
        &mut self,
        outgoing: &mut VecDeque<OutgoingMessage>,
        mut report: impl FnMut(&OutgoingMessage),
    ) -> Result<bool, Error> {
        while self.inner.flush_and_settle()? == StepResult::Done {
            let Some(first) = outgoing.front_mut() else { return Ok(true) };
            if first.sending.step(&mut self.inner, first.body.as_slice().into())?
                != StepResult::Done
            {
                return Ok(false);
            }
            if let Some(sent) = outgoing.pop_front() {
                report(&sent);
            }
        }
        Ok(false)
    }

    /// Returns the next message, if all of it has arrived in this turn. The check decides by its header if it is one
    /// that the worker may send now.
    pub(super) fn next(
        &mut self,
        check: impl Fn(&Body) -> Result<(), Error>,
    ) -> Result<Option<RawMessage>, Error> {
        loop {
            let message = self.incoming.next(&mut self.inner, &check)?;
            // The rest of a partial message is most likely being written. A sleep for each part would take longer than
            // the part.
            if message.is_some()
                || !self.incoming.is_partial()
                || !self.inner.may_spin()
                || !self.spin()
            {
                return Ok(message);
            }
        }
    }

    /// Spins for a while. Returns true if the ring has the next frame.
    pub(super) fn spin(&mut self) -> bool {
        self.spin.until(|| self.inner.has_records());
        // A record may come after a frame that only a wait brings.
        self.inner.next_is_in_ring()
    }

    /// Drops the connection: on another thread if that may block.
    pub(super) fn discard(mut self: Box<Self>) {
        if self.inner.end.end_both() {
            drop_elsewhere(self);
        }
    }

    /// Returns true if nothing is known to be on its way in either direction.
    pub(super) fn is_quiet(&self) -> bool {
        self.inner.unsent() == 0 && !self.incoming.is_partial()
    }

    /// Ends a wait: `arrived` if something arrived, after a sleep of that length. `has_spun` if there was a spin before
    /// it.
    pub(super) fn wake_up(&mut self, arrived: bool, slept: Duration, has_spun: bool) {
        self.inner.wake_up(if arrived { slept } else { Duration::ZERO });
        if arrived && (has_spun || self.incoming.is_partial()) {
            self.spin.note_sleep(slept);
        }
    }
}
