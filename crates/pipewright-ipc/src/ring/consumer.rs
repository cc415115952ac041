//! The side that empties a ring.

use super::cursor;
use super::{Broken, HEAD, Ours, RECORD_HEADER_BYTES, SLEEP, TAIL, Theirs};
use crate::wire::{Header, kind};

/// How far a ring is emptied.
#[derive(Debug)]
pub(crate) struct Consumer {
    capacity: usize,
    tail: u64,
    /// How far the other side knows of it.
    published: u64,
    /// As far as the other side was when we last looked.
    head: u64,
    /// Our word: odd while we sleep.
    sleep: u64,
    /// The next record: its header is read once, whatever becomes of it in the ring.
    next: Option<Record>,
}

/// A record that stands in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) header: Header,
    /// How many frames went through the socket before it.
    pub(crate) after: u64,
    /// Where its body stands.
    pub(crate) body: usize,
    /// The position behind it.
    pub(crate) end: u64,
}

impl Consumer {
    pub(super) fn new(capacity: usize) -> Consumer {
        Consumer { capacity, tail: 0, published: 0, head: 0, sleep: 0, next: None }
    }

    /// The next record, which stays where it is until it is [released](Self::release).
    #[inline]
    pub(crate) fn peek(&mut self, theirs: &impl Theirs) -> Result<Option<&Record>, Broken> {
        while self.next.is_none() {
            if self.tail == self.head && !self.look(theirs)? {
                return Ok(None);
            }
            self.next = self.record(theirs)?;
        }
        Ok(self.next.as_ref())
    }

    /// The record, or `None` where it only fills up the end of the ring.
    #[inline]
    fn record(&mut self, theirs: &impl Theirs) -> Result<Option<Record>, Broken> {
        let at = cursor::offset(self.capacity, self.tail);
        let numbers = theirs.numbers(at).map_err(|_| Broken::Record)?.map(u64::from_le);
        let [first, second, after, total] = numbers;
        let header = Header::from_words([first, second], total).map_err(Broken::Header)?;
        let there = self.head - self.tail;
        let left = self.capacity - at;
        if header.kind == kind::PAD {
            // Never the whole of what is there: a record is what it makes room for.
            if left as u64 >= there {
                return Err(Broken::Record);
            }
            self.tail += left as u64;
            return Ok(None);
        }
        let bytes = usize::try_from(header.length).ok().and_then(cursor::record_bytes);
        match bytes.filter(|bytes| *bytes <= left && *bytes as u64 <= there) {
            Some(bytes) => Ok(Some(Record {
                header,
                after,
                body: at + RECORD_HEADER_BYTES,
                end: self.tail + bytes as u64,
            })),
            None => Err(Broken::Record),
        }
    }

    /// Whether there is more than when this was asked last.
    #[inline]
    fn look(&mut self, theirs: &impl Theirs) -> Result<bool, Broken> {
        let head = theirs.word(HEAD);
        if head == self.head {
            return Ok(false);
        }
        let in_ring = head.checked_sub(self.tail).is_some_and(|it| it <= self.capacity as u64);
        if !in_ring || !cursor::may_advance(self.head, head, self.capacity as u64) {
            return Err(Broken::Head);
        }
        self.head = head;
        Ok(true)
    }

    /// Whether a look would find something.
    #[inline]
    pub(crate) fn has_news(&self, theirs: &impl Theirs) -> bool {
        self.next.is_some() || self.tail != self.head || theirs.word(HEAD) != self.head
    }

    /// Gives the place of the next record back, behind which `end` is. The other side is told when the ring was emptied, or a sixteenth
    /// of it: a sender that waits for room would else fetch that line for every record, and we ours back.
    #[inline]
    pub(crate) fn release(&mut self, ours: &impl Ours, end: u64) {
        self.next = None;
        self.tail = end;
        let step = self.capacity as u64 / 16;
        if self.tail == self.head || self.tail - self.published >= step {
            self.published = self.tail;
            ours.publish(TAIL, self.tail);
        }
    }

    /// Says that we are about to wait for the socket. `false`: something has come meanwhile, and we
    /// do not.
    pub(crate) fn fall_asleep(&mut self, ours: &impl Ours, theirs: &impl Theirs) -> bool {
        self.sleep += 1;
        ours.announce(SLEEP, self.sleep);
        let is_behind = self.next.is_some() || self.tail != self.head;
        if is_behind || theirs.word_in_order(HEAD) != self.head {
            self.wake_up(ours);
            return false;
        }
        true
    }

    /// Says that we look at the ring again.
    pub(crate) fn wake_up(&mut self, ours: &impl Ours) {
        if self.sleep % 2 == 1 {
            self.sleep += 1;
            ours.publish(SLEEP, self.sleep);
        }
    }
}
