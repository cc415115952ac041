//! The side that fills a ring.

use super::cursor::{self, Place};
use super::{Broken, HEAD, Ours, RECORD_HEADER_BYTES, SLEEP, TAIL, Theirs};
use crate::wire::{Header, kind};

/// How far a ring is filled.
#[derive(Debug)]
pub(crate) struct Producer {
    capacity: usize,
    head: u64,
    /// How far the other side knows of it.
    published: u64,
    /// As far as the other side was when we last needed to know.
    tail: u64,
    /// The sleep that was ended last.
    rung: u64,
    /// The most that was in the ring at one time, as far as we looked.
    high_water: u64,
    /// How many records there were.
    count: u64,
}

/// For one record of so many the other side is asked how far it is, so that it is known how full the ring
/// gets.
const SAMPLE: u64 = 64;

impl Producer {
    pub(super) fn new(capacity: usize) -> Producer {
        Producer { capacity, head: 0, published: 0, tail: 0, rung: 0, high_water: 0, count: 0 }
    }

    /// The most body that a record may have.
    pub(crate) fn most_body_bytes(&self) -> usize {
        cursor::most_body_bytes(self.capacity)
    }

    /// The most that was in the ring at one time, in bytes, as far as we looked.
    pub(crate) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// A place for a record with so much body; `None`: there is no room now.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        theirs: &impl Theirs,
        body: usize,
    ) -> Result<Option<Place>, Broken> {
        let place = cursor::place(self.capacity, self.head, self.tail, body);
        if place.is_some() && self.count % SAMPLE != 0 {
            return Ok(place);
        }
        // Looked at only when it matters: the line is the other side's, and costs a trip.
        let tail = theirs.word(TAIL);
        if !cursor::may_advance(self.tail, tail, self.published - self.tail) {
            return Err(Broken::Tail);
        }
        self.tail = tail;
        self.high_water = self.high_water.max(self.head - tail);
        Ok(cursor::place(self.capacity, self.head, tail, body))
    }

    /// Fills in the header of a record whose body is in its place. `after` is how many frames went through
    /// the socket before it. The other side has it when it is [published](Self::publish).
    #[inline]
    pub(crate) fn commit(
        &mut self,
        ours: &mut impl Ours,
        place: Place,
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

    /// How many bytes are committed and not published.
    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Lets the other side have everything that was committed. Whether it sleeps, and has not been woken
    /// for it: then the caller has to write something to the socket, and this says so once for each sleep.
    #[inline]
    pub(crate) fn publish(&mut self, ours: &impl Ours, theirs: &impl Theirs) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        ours.announce(HEAD, self.head);
        let sleep = theirs.word_in_order(SLEEP);
        if sleep % 2 == 0 || sleep == self.rung {
            return false;
        }
        self.rung = sleep;
        true
    }

    /// Whether what is sent now has to go through the socket anyway, to wake the other side. It is
    /// woken by that.
    #[inline]
    pub(crate) fn sleeps(&self, theirs: &impl Theirs) -> Option<u64> {
        let sleep = theirs.word(SLEEP);
        (sleep % 2 == 1 && sleep != self.rung).then_some(sleep)
    }

    /// That sleep is ended by something that is in the socket.
    #[inline]
    pub(crate) fn note_woken(&mut self, sleep: u64) {
        self.rung = sleep;
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
