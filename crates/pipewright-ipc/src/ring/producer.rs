//! The producer of a ring.

use super::cursor::{self, RecordPlace};
use super::{HEAD, OwnMemory, PeerMemory, RECORD_HEADER_BYTES, RingError, SLEEP, TAIL};
use crate::wire::{Header, kind};

/// The state of a producer.
#[derive(Debug)]
pub(crate) struct Producer {
    capacity: usize,
    head: u64,
    /// The head that the other side knows.
    published: u64,
    /// The tail as last read.
    tail: u64,
    /// The last sleep of the other side that this side has ended.
    woken_sleep: u64,
    /// The most bytes found in the ring at one time.
    high_water: u64,
    /// The number of records so far.
    count: u64,
}

/// The number of records between two reads of the tail that only measure how full the ring gets.
const SAMPLE: u64 = 64;

impl Producer {
    pub(super) fn new(capacity: usize) -> Producer {
        Producer {
            capacity,
            head: 0,
            published: 0,
            tail: 0,
            woken_sleep: 0,
            high_water: 0,
            count: 0,
        }
    }

    /// Returns the longest body of a record.
    pub(crate) fn max_body_bytes(&self) -> usize {
        cursor::max_body_bytes(self.capacity)
    }

    /// Returns the most bytes found in the ring at one time.
    pub(crate) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Returns a place for a record with this length of body. `None`: there is no room now.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        theirs: &impl PeerMemory,
        body: usize,
    ) -> Result<Option<RecordPlace>, RingError> {
        let place = cursor::place(self.capacity, self.head, self.tail, body);
        if place.is_some() && self.count % SAMPLE != 0 {
            return Ok(place);
        }
        // Read only when needed: the other side writes this cache line, and fetching it is slow.
        let tail = theirs.word(TAIL);
        if !cursor::may_advance(self.tail, tail, self.published - self.tail) {
            return Err(RingError::Tail);
        }
        self.tail = tail;
        self.high_water = self.high_water.max(self.head - tail);
        Ok(cursor::place(self.capacity, self.head, tail, body))
    }

    /// Writes the header of a record whose body is in its place. `after` is the number of frames that went through
    /// the socket before it. The other side sees the record when it is [published](Self::publish).
    #[inline]
    pub(crate) fn commit(
        &mut self,
        ours: &mut impl OwnMemory,
        place: RecordPlace,
        header: &Header,
        after: u64,
    ) {
        if let Some(pad) = place.pad {
            ours.fill(pad, &record_header(&Header::new(kind::PAD, 0), 0));
        }
        ours.fill(place.at, &record_header(header, after));
        self.head = place.end;
        self.count += 1;
    }

    /// Returns the number of bytes that are committed and not published.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Publishes all committed records. Returns true if the other side sleeps and the caller has to write
    /// something to the socket, once for each sleep.
    #[inline]
    pub(crate) fn publish(&mut self, ours: &impl OwnMemory, theirs: &impl PeerMemory) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        ours.announce(HEAD, self.head);
        let sleep = theirs.word_in_order(SLEEP);
        if sleep % 2 == 0 || sleep == self.woken_sleep {
            return false;
        }
        self.woken_sleep = sleep;
        true
    }

    /// Returns the number of the other side's current sleep, if something in the socket still has to end it.
    #[inline]
    pub(crate) fn sleeps(&self, theirs: &impl PeerMemory) -> Option<u64> {
        let sleep = theirs.word(SLEEP);
        (sleep % 2 == 1 && sleep != self.woken_sleep).then_some(sleep)
    }

    /// Records that something in the socket ends this sleep.
    #[inline]
    pub(crate) fn note_woken(&mut self, sleep: u64) {
        self.woken_sleep = sleep;
    }
}

#[inline]
fn record_header(header: &Header, after: u64) -> [u8; RECORD_HEADER_BYTES] {
    let [first, second] = header.words();
    let mut bytes = [0; RECORD_HEADER_BYTES];
    let numbers = [first, second, after, header.total.unwrap_or(0)];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}
