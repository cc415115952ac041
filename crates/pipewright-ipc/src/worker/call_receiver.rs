//! The messages of the host, sorted: calls in their order, and messages about the call that is being answered.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use super::credit::Credits;
use super::input::{CallInput, without_credit};
use crate::channel::{Channel, Core, Message, Raw};
use crate::connection::{Connection, RawMessage};
use crate::error::{Error, ErrorKind};
use crate::wire::{MAX_CALLS, kind};

/// A connection that receives calls.
#[derive(Debug)]
pub(super) struct CallReceiver {
    core: Core,
    /// Calls that arrived while another one was being answered.
    waiting: VecDeque<RawMessage>,
    credits: Credits,
    cancelled: HashSet<u64>,
    /// The items of the call that is being answered, if items follow its request.
    input: Option<CallInput>,
    /// Calls that wait, and whose items have ended.
    without_items: HashSet<u64>,
    /// The violation of the protocol after which nothing more is received, also if a handler ignored it.
    violation: Option<ErrorKind>,
}

impl CallReceiver {
    pub(super) fn new(channel: Channel) -> CallReceiver {
        CallReceiver {
            core: channel.core,
            waiting: VecDeque::new(),
            credits: Credits::default(),
            cancelled: HashSet::new(),
            input: None,
            without_items: HashSet::new(),
            violation: None,
        }
    }

    /// Returns the kind and the call of the next request or reset, and reads it into the buffer.
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                *buffer = message.bytes;
                return Ok((message.kind, message.id));
            }
            let (kind, id) = self.receive(buffer)?;
            if !self.handle(0, kind, id, buffer)? {
                return Ok((kind, id));
            }
        }
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        self.check()?;
        let until = self.core.until();
        self.core.drive(until, Connection::begin)?;
        self.read(until, buffer)
    }

    fn read(&mut self, until: Option<Instant>, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        let header = self.core.connection.body().map_or((0, 0), |body| (body.kind, body.id));
        Message::<Raw>::new(&mut self.core, until).read_into(buffer)?;
        Ok(header)
    }

    fn check(&self) -> Result<(), Error> {
        self.violation.as_ref().map_or(Ok(()), |kind| Err(Error::new(kind.clone())))
    }

    /// Handles a message about a call: the current one, or one that waits. Returns false if the message is a call itself.
    fn handle(&mut self, call: u64, kind: u8, id: u64, bytes: &[u8]) -> Result<bool, Error> {
        match kind {
            kind::MESSAGE | kind::CALL | kind::OPEN_CALL | kind::RESET => return Ok(false),
            kind::CANCEL => {
                // A CANCEL that comes after the answer would be kept forever. Plain messages and resets have the id 0.
                if id != 0 && (id == call || self.is_waiting(id)) {
                    self.cancelled.insert(id);
                }
            }
            kind::CREDIT => {
                let more = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let waiting = &self.waiting;
                let is_open =
                    |id| id == call || waiting.iter().any(|message: &RawMessage| message.id == id);
                self.credits.add(id, more, is_open);
            }
            // Also one of a request that came as a whole. A plain message and a reset have the id 0.
            kind::ITEM if self.is_waiting(id) || id == call && id != 0 => {
                return Err(without_credit());
            }
            // An item of a call that has ended. `sort` takes the others.
            kind::ITEM => {}
            kind::ITEMS_END if self.is_waiting(id) => drop(self.without_items.insert(id)),
            kind::ITEMS_END => {
                if let Some(input) = self.input.as_mut().filter(|input| input.call == id) {
                    input.has_ended = true;
                }
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} from a host"))),
        }
        Ok(true)
    }

    fn is_waiting(&self, id: u64) -> bool {
        self.waiting.iter().any(|message| message.id == id)
    }

    /// Prepares for the items that follow the request of the call.
    pub(super) fn begin_input(&mut self, call: u64) {
        self.input = Some(CallInput::new(call, self.without_items.remove(&call)));
    }

    /// Returns the items of the call that is being answered, if there are any.
    pub(super) fn input(&mut self) -> Option<&mut CallInput> {
        self.input.as_mut()
    }

    /// Waits for the next message, and sorts it. Returns the answer to a question of this call.
    pub(super) fn receive_next(&mut self, call: u64) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let mut bytes = Vec::new();
        let (kind, id) = self.receive(&mut bytes)?;
        self.sort(call, RawMessage { kind, id, bytes })
    }

    /// Sorts the messages that have arrived, without waiting for others.
    pub(super) fn receive_available(&mut self, call: u64) -> Result<(), Error> {
        self.check()?;
        while self.core.try_begin(Connection::begin)? {
            let mut bytes = Vec::new();
            // The rest of a long message is on its way.
            let until = self.core.until();
            let (kind, id) = self.read(until, &mut bytes)?;
            self.sort(call, RawMessage { kind, id, bytes })?;
        }
        Ok(())
    }

    fn sort(&mut self, call: u64, message: RawMessage) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let sorted = self.try_sort(call, message);
        sorted.inspect_err(|error| self.violation = Some(error.kind().clone()))
    }

    fn try_sort(&mut self, call: u64, message: RawMessage) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let RawMessage { kind, id, bytes } = message;
        if matches!(kind, kind::ANSWER | kind::DECLINED) {
            // An answer that no question waits for belongs to a call that has ended.
            return Ok((id == call).then_some((kind, bytes)));
        }
        match &mut self.input {
            Some(input) if kind == kind::ITEM && input.call == id => {
                return input.add(bytes).map(|()| None);
            }
            _ => {}
        }
        if !self.handle(call, kind, id, &bytes)? {
            if self.waiting.len() >= MAX_CALLS {
                return Err(Error::protocol("too many calls at a time"));
            }
            self.waiting.push_back(RawMessage { kind, id, bytes });
        }
        Ok(None)
    }

    /// Returns true if the host has cancelled the call.
    pub(super) fn is_cancelled(&self, call: u64) -> bool {
        self.cancelled.contains(&call)
    }

    /// Returns the number of items that the call may send. `None`: the host accepts no items.
    pub(super) fn credit(&mut self, call: u64) -> Option<&mut u32> {
        self.credits.of(call)
    }

    /// Sends a message of a call.
    pub(super) fn send(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send((kind, call), bytes, until)
    }

    /// Sends the last message of a call.
    pub(super) fn end(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        self.credits.end(call);
        self.input = None;
        self.without_items.remove(&call);
        self.cancelled.remove(&call);
        match self.send(kind, call, bytes) {
            // Nothing was sent, so the call of a pool can fail with this error.
            Err(error) if is_too_long(&error) && kind != kind::MESSAGE => {
                self.send(kind::FAILED, call, error.to_string().as_bytes())
            }
            sent => sent,
        }
    }

    /// Ends the connection after this error.
    pub(super) fn close(mut self, error: Error) -> Result<(), Error> {
        match error.kind() {
            ErrorKind::Closed => self.core.close().map(drop),
            _ if error.is_disconnect() => Ok(()),
            _ => Err(error),
        }
    }
}

fn is_too_long(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLong { .. })
}
