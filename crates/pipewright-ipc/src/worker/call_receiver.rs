//! The messages of the host, sorted: calls in their order, and messages about the call that is being answered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

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
    /// The number of items that each call may send, if its host accepts items.
    credit: HashMap<u64, u32>,
    cancelled: HashSet<u64>,
    /// The last answered calls that could send items: more credit for them may be on its way. As many as the host can
    /// have open at a time, so that none is missed.
    answered: VecDeque<u64>,
}

impl CallReceiver {
    pub(super) fn new(channel: Channel) -> CallReceiver {
        CallReceiver {
            core: channel.core,
            waiting: VecDeque::new(),
            credit: HashMap::new(),
            cancelled: HashSet::new(),
            answered: VecDeque::new(),
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
        let until = self.core.until();
        self.core.drive(until, Connection::begin)?;
        self.read(until, buffer)
    }

    fn read(&mut self, until: Option<Instant>, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        let header = self.core.connection.body().map_or((0, 0), |body| (body.kind, body.id));
        Message::<Raw>::new(&mut self.core, until).read_into(buffer)?;
        Ok(header)
    }

    /// Handles a message about a call: the current one, or one that waits. Returns false if the message is a call itself.
    fn handle(&mut self, call: u64, kind: u8, id: u64, bytes: &[u8]) -> Result<bool, Error> {
        match kind {
            kind::MESSAGE | kind::CALL | kind::RESET => return Ok(false),
            kind::CANCEL => {
                // A CANCEL that comes after the answer would be kept forever.
                if id == call || self.waiting.iter().any(|message| message.id == id) {
                    self.cancelled.insert(id);
                }
            }
            // Credit for a call that was answered would be kept forever.
            kind::CREDIT if self.answered.contains(&id) => {}
            kind::CREDIT => {
                let more = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let credit = self.credit.entry(id).or_default();
                *credit = credit.saturating_add(more);
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} from a host"))),
        }
        Ok(true)
    }

    /// Waits for the next message, and sorts it. Returns the answer to a question of this call.
    pub(super) fn receive_next(&mut self, call: u64) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let mut bytes = Vec::new();
        let (kind, id) = self.receive(&mut bytes)?;
        self.sort(call, RawMessage { kind, id, bytes })
    }

    /// Sorts the messages that have arrived, without waiting for others.
    pub(super) fn receive_available(&mut self, call: u64) -> Result<(), Error> {
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
        let RawMessage { kind, id, bytes } = message;
        if matches!(kind, kind::ANSWER | kind::DECLINED) {
            // An answer that no question waits for belongs to a call that has ended.
            return Ok((id == call).then_some((kind, bytes)));
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
        self.credit.get_mut(&call)
    }

    /// Sends a message of a call.
    pub(super) fn send(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send((kind, call), bytes, until)
    }

    /// Sends the last message of a call.
    pub(super) fn end(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        if self.credit.remove(&call).is_some() {
            if self.answered.len() >= MAX_CALLS {
                self.answered.pop_front();
            }
            self.answered.push_back(call);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn credit_that_comes_after_the_answer_is_not_kept() {
        let (end, handle) = pipewright_os::channel::handle_channel::pair().unwrap();
        let host = std::thread::spawn(move || {
            let mut host: Channel = Channel::connected_as_host(end, &Options::default()).unwrap();
            // Until the worker has closed the connection.
            while host.recv().is_ok() {}
        });
        let mut call_receiver =
            CallReceiver::new(Channel::as_worker(handle, &Options::default()).unwrap());
        let one = 1_u32.to_le_bytes();
        for call in 1..=MAX_CALLS as u64 * 3 {
            call_receiver.handle(0, kind::CREDIT, call, &one).unwrap();
            assert_eq!(call_receiver.credit(call).copied(), Some(1));
            call_receiver.end(kind::MESSAGE, call, &[]).unwrap();
            call_receiver.handle(0, kind::CREDIT, call, &one).unwrap();
            assert_eq!(call_receiver.credit(call), None);
        }
        assert!(call_receiver.credit.is_empty() && call_receiver.answered.len() <= MAX_CALLS);
        drop(call_receiver);
        host.join().unwrap();
    }
}
