//! The consumer of a ring.

use super::cursor;
use super::{HEAD, OwnMemory, PeerMemory, RECORD_HEADER_BYTES, RingError, SLEEP, TAIL};
use crate::wire::{Header, kind};

/// The state of a consumer.
#[derive(Debug)]
pub(crate) struct Consumer {
    capacity: usize,
    tail: u64,
    /// The tail that the other side knows.
    published: u64,
    /// The head as last read.
    head: u64,
    /// The value of the own SLEEP word: odd during a sleep.
    sleep: u64,
    /// The next record. Its header is read only once, in case the peer changes it.
    next: Option<Record>,
}

/// A record in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) header: Header,
    /// The number of frames that went through the socket before it.
    pub(crate) after: u64,
    /// The offset of its body.
    pub(crate) body: usize,
    /// The position after it.
    pub(crate) end: u64,
}

impl Consumer {
    pub(super) fn new(capacity: usize) -> Consumer {
        Consumer { capacity, tail: 0, published: 0, head: 0, sleep: 0, next: None }
    }

    /// Returns the next record, which keeps its place until it is [released](Self::release).
    #[inline]
    pub(crate) fn peek(&mut self, theirs: &impl PeerMemory) -> Result<Option<&Record>, RingError> {
        while self.next.is_none() {
            if self.tail == self.head && !self.refresh_head(theirs)? {
                return Ok(None);
            }
            self.next = self.record(theirs)?;
        }
        Ok(self.next.as_ref())
    }

    /// Reads the record at the tail. `None`: it was only padding.
    #[inline]
    fn record(&mut self, theirs: &impl PeerMemory) -> Result<Option<Record>, RingError> {
        let at = cursor::offset(self.capacity, self.tail);
        let numbers = theirs.numbers(at).map_err(|_| RingError::Record)?.map(u64::from_le);
        let [first, second, after, total] = numbers;
        let header = Header::from_words([first, second], total).map_err(RingError::Header)?;
        let there = self.head - self.tail;
        let left = self.capacity - at;
        if header.kind == kind::PAD {
            // Padding is never the last record: it makes room for another one.
            if left as u64 >= there {
                return Err(RingError::Record);
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
            None => Err(RingError::Record),
        }
    }

    /// Reads the head. Returns true if it has advanced.
    #[inline]
    fn refresh_head(&mut self, theirs: &impl PeerMemory) -> Result<bool, RingError> {
        let head = theirs.word(HEAD);
        if head == self.head {
            return Ok(false);
        }
        let in_ring = head.checked_sub(self.tail).is_some_and(|it| it <= self.capacity as u64);
        if !in_ring || !cursor::may_advance(self.head, head, self.capacity as u64) {
            return Err(RingError::Head);
        }
        self.head = head;
        Ok(true)
    }

    /// Returns true if there are records, without reading them.
    #[inline]
    pub(crate) fn has_records(&self, theirs: &impl PeerMemory) -> bool {
        self.next.is_some() || self.tail != self.head || theirs.word(HEAD) != self.head
    }

    /// Releases the place of the next record, which ends at `end`. Publishes the tail when the ring is empty, or
    /// after a sixteenth of it: otherwise a waiting sender would fetch that cache line for each record, and this
    /// side would fetch it back.
    #[inline]
    pub(crate) fn release(&mut self, ours: &impl OwnMemory, end: u64) {
        self.next = None;
        self.tail = end;
        let step = self.capacity as u64 / 16;
        if self.tail == self.head || self.tail - self.published >= step {
            self.published = self.tail;
            ours.publish(TAIL, self.tail);
        }
    }

    /// Announces a wait for the socket. Returns false if a record has arrived meanwhile: the caller must not wait
    /// then.
    pub(crate) fn fall_asleep(&mut self, ours: &impl OwnMemory, theirs: &impl PeerMemory) -> bool {
        // A future that was dropped in its wait has left the word odd: one more increment would announce that this side
        // is awake.
        self.wake_up(ours);
        self.sleep += 1;
        ours.announce(SLEEP, self.sleep);
        let is_behind = self.next.is_some() || self.tail != self.head;
        if is_behind || theirs.word_in_order(HEAD) != self.head {
            self.wake_up(ours);
            return false;
        }
        true
    }

    /// Announces the end of a wait.
    pub(crate) fn wake_up(&mut self, ours: &impl OwnMemory) {
        if self.sleep % 2 == 1 {
            self.sleep += 1;
            ours.publish(SLEEP, self.sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const CAPACITY: usize = 4096;

    /// The other side's memory, which may say anything.
    struct Peer {
        head: u64,
        /// The kind and the length of the record at each offset.
        record: fn(usize) -> (u8, u64),
    }

    impl PeerMemory for Peer {
        fn bytes(&self) -> usize {
            CAPACITY
        }

        fn word(&self, _: usize) -> u64 {
            self.head
        }

        fn word_in_order(&self, _: usize) -> u64 {
            self.head
        }

        fn numbers(&self, at: usize) -> io::Result<[u64; 4]> {
            let (kind, length) = (self.record)(at);
            Ok([u64::from(kind) << 32 | length, 0, 0, 0].map(u64::to_le))
        }
    }

    /// Returns the end of the next record, after everything before `tail` was released.
    fn next(
        tail: u64,
        head: u64,
        record: fn(usize) -> (u8, u64),
    ) -> Result<Option<u64>, RingError> {
        let mut consumer = Consumer { tail, head: tail, ..Consumer::new(CAPACITY) };
        Ok(consumer.peek(&Peer { head, record })?.map(|record| record.end))
    }

    #[test]
    fn a_record_ends_where_the_published_ones_do() {
        let whole = |_| (kind::PART, 100);
        let next = |tail, head| next(tail, head, whole);
        assert_eq!(
            next(128, 128 + 192),
            Ok(Some(128 + 192)),
            "a header and 100 bytes, in lines of 64"
        );
        assert_eq!(next(128, 128 + 128), Err(RingError::Record), "longer than what was published");
        assert_eq!(next(4096 - 64, 4096 + 256), Err(RingError::Record), "beyond the ring");
        assert_eq!(next(128, 128), Ok(None));
    }

    #[test]
    fn padding_makes_room_for_another_record() {
        let padded = |at| if at == 0 { (kind::PART, 0) } else { (kind::PAD, 0) };
        let last = 2 * 4096 - 64;
        assert_eq!(next(last, last + 128, padded), Ok(Some(last + 128)));
        assert_eq!(next(last, last + 64, padded), Err(RingError::Record), "the last record");
        assert_eq!(next(4096 - 128, 4096 - 64, padded), Err(RingError::Record), "beyond the head");
    }
}
