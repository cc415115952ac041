//! What the host has sent, sorted: calls in their order, and what belongs to the one that is being
//! answered.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::channel::{Channel, Core, Message, Piece, Progress, Raw};
use crate::error::{Error, ErrorKind};
use crate::wire::{Header, kind};

/// So many calls may wait here while another one is being answered.
pub(crate) const MOST_WAITING: usize = 1024;

/// A connection that calls come over.
#[derive(Debug)]
pub(super) struct Desk {
    core: Core,
    /// Calls that came while another one was being answered.
    waiting: VecDeque<Piece>,
    /// How many pieces of an answer may be sent, where the host takes any.
    credit: HashMap<u64, u32>,
    cancelled: HashSet<u64>,
    /// Of the calls that were answered last, those that could have sent pieces: more credit for them may be under
    /// way. As many as the host can have open at a time, so that none is missed.
    answered: VecDeque<u64>,
}

impl Desk {
    pub(super) fn new(channel: Channel) -> Desk {
        Desk {
            core: channel.core,
            waiting: VecDeque::new(),
            credit: HashMap::new(),
            cancelled: HashSet::new(),
            answered: VecDeque::new(),
        }
    }

    /// The next question, or reset: its kind and its call.
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        loop {
            if let Some(piece) = self.waiting.pop_front() {
                *buffer = piece.bytes;
                return Ok((piece.kind, piece.id));
            }
            let (kind, id) = self.receive(buffer)?;
            if !self.note(0, kind, id, buffer)? {
                return Ok((kind, id));
            }
        }
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        let until = self.core.until();
        self.core.begin_any(until)?;
        let begun = self.core.begun();
        Message::<Raw>::new(&mut self.core, until).read_into(buffer)?;
        Ok(begun)
    }

    /// Notes what belongs to a call without being one: to that which is being answered, or to one that waits. `false`:
    /// it is one.
    fn note(&mut self, call: u64, kind: u8, id: u64, bytes: &[u8]) -> Result<bool, Error> {
        match kind {
            kind::MESSAGE | kind::CALL | kind::RESET => return Ok(false),
            kind::CANCEL => {
                // One that comes after its call's answer would be kept for ever.
                if id == call || self.waiting.iter().any(|piece| piece.id == id) {
                    self.cancelled.insert(id);
                }
            }
            // It would be kept for ever.
            kind::CREDIT if self.answered.contains(&id) => {}
            kind::CREDIT => {
                let more = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let credit = self.credit.entry(id).or_default();
                *credit = credit.saturating_add(more);
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} as a call"))),
        }
        Ok(true)
    }

    /// Waits for the next frame, and puts it in its place. What answers a question of that call is given.
    pub(super) fn sort_next(&mut self, call: u64) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let mut bytes = Vec::new();
        let (kind, id) = self.receive(&mut bytes)?;
        self.sort(call, Piece { kind, id, bytes })
    }

    /// The same with whatever is there already.
    pub(super) fn sort_what_is_there(&mut self, call: u64) -> Result<(), Error> {
        while self.core.try_begin_any()? == Progress::Done {
            let ((kind, id), mut bytes) = (self.core.begun(), Vec::new());
            // Of a long one the rest is on its way.
            let until = self.core.until();
            Message::<Raw>::new(&mut self.core, until).read_into(&mut bytes)?;
            self.sort(call, Piece { kind, id, bytes })?;
        }
        Ok(())
    }

    fn sort(&mut self, call: u64, piece: Piece) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let Piece { kind, id, bytes } = piece;
        if matches!(kind, kind::ANSWER | kind::DECLINED) {
            // One that nobody waits for belongs to a call that has ended meanwhile.
            return Ok((id == call).then_some((kind, bytes)));
        }
        if !self.note(call, kind, id, &bytes)? {
            if self.waiting.len() >= MOST_WAITING {
                return Err(Error::protocol("too many calls at a time"));
            }
            self.waiting.push_back(Piece { kind, id, bytes });
        }
        Ok(None)
    }

    /// Whether the host does not want the answer any more.
    pub(super) fn is_cancelled(&self, call: u64) -> bool {
        self.cancelled.contains(&call)
    }

    /// How many pieces may be sent; `None`: the host takes none at all.
    pub(super) fn credit(&mut self, call: u64) -> Option<&mut u32> {
        self.credit.get_mut(&call)
    }

    /// Sends something that belongs to a call.
    pub(super) fn send(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send(Header { id: call, ..Header::new(kind, 0) }, bytes, until)
    }

    /// Sends the last of a call.
    pub(super) fn end(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        if self.credit.remove(&call).is_some() {
            if self.answered.len() >= MOST_WAITING {
                self.answered.pop_front();
            }
            self.answered.push_back(call);
        }
        self.cancelled.remove(&call);
        match self.send(kind, call, bytes) {
            // Nothing of it has gone; a call that is one of a pool can be told.
            Err(error) if is_too_long(&error) && kind != kind::MESSAGE => {
                self.send(kind::FAILED, call, error.to_string().as_bytes())
            }
            sent => sent,
        }
    }

    /// What is left to do when nothing more can be received.
    pub(super) fn leave(mut self, why: Error) -> Result<(), Error> {
        match why.kind() {
            ErrorKind::Closed => self.core.close_in_time().map(drop),
            _ if why.is_disconnect() => Ok(()),
            _ => Err(why),
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
            // Until the worker is gone.
            while host.recv().is_ok() {}
        });
        let mut desk = Desk::new(Channel::as_worker(handle, &Options::default()).unwrap());
        let one = 1_u32.to_le_bytes();
        for call in 1..=MOST_WAITING as u64 * 3 {
            desk.note(0, kind::CREDIT, call, &one).unwrap();
            assert_eq!(desk.credit(call).copied(), Some(1));
            desk.end(kind::MESSAGE, call, &[]).unwrap();
            desk.note(0, kind::CREDIT, call, &one).unwrap();
            assert_eq!(desk.credit(call), None);
        }
        assert!(desk.credit.is_empty() && desk.answered.len() <= MOST_WAITING);
        drop(desk);
        host.join().unwrap();
    }
}
