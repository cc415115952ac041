//! Messages through memory that two processes share: one ring in each direction.
//!
//! Each side has one object that only it writes: its words, and the ring that it fills. The producer of a ring
//! publishes how far it is filled (`HEAD`), the consumer how far it is emptied (`TAIL`), each in its own object. Each
//! side computes the position of its next record from its own count. It uses the other's count only as a limit, after a
//! check.
//!
//! A record is a header of 32 bytes, the body, and padding to a multiple of 64. It never wraps around the end of the
//! ring: a record of kind `PAD` fills the space that is left there.
//!
//! # Wake-ups
//! No side sleeps on memory. A side with nothing to do waits for the socket, which also reports the death of the other
//! side. It first announces that wait in its own word (`SLEEP` becomes odd) and checks the ring once more. A
//! producer that has published a record checks if the other side sleeps, and only then writes a frame to the socket,
//! once for each sleep. The announcements and the checks of both sides have one total order, so at least one side sees
//! the announcement of the other: no wake-up is lost (`model.rs` checks every order).
//!
//! A peer that publishes wrong values mainly harms itself: a wrong `SLEEP` costs it a wake-up, or this side a
//! superfluous frame; a wrong `TAIL` or `HEAD` ends the connection.

use std::io;

use pipewright_os::channel::shm::{Seen, Written};

use crate::wire::{Header, kind};

/// The number of bytes written to this object's ring since the start of the connection.
const HEAD: usize = 0;
/// The number of bytes read from the other side's ring.
const TAIL: usize = 1;
/// Odd: the owner sleeps until something arrives at the socket. Grows by one with each change.
const SLEEP: usize = 2;

/// The header of a record: the 16 bytes of a frame's header, and two more numbers.
const RECORD_HEADER_BYTES: usize = 32;

/// A violation of the ring's protocol by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingError {
    /// TAIL passes the end of the records, or goes back.
    Tail,
    /// HEAD exceeds the size of the ring, or goes back.
    Head,
    /// A record does not fit at its position.
    Record,
    Header(crate::wire::Invalid),
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RingError::Tail => "TAIL of the ring is out of range",
            RingError::Head => "HEAD of the ring is out of range",
            RingError::Record => "a record does not fit at its position in the ring",
            RingError::Header(invalid) => return invalid.fmt(f),
        })
    }
}

/// The rings of both directions, as one side sees them.
#[derive(Debug)]
pub(crate) struct Ring<O, T> {
    pub(crate) ours: O,
    pub(crate) theirs: T,
    pub(crate) producer: Producer,
    pub(crate) consumer: Consumer,
}

impl<O: OwnMemory, T: PeerMemory> Ring<O, T> {
    pub(crate) fn new(ours: O, theirs: T) -> Ring<O, T> {
        let producer = Producer::new(ours.bytes());
        let consumer = Consumer::new(theirs.bytes());
        Ring { ours, theirs, producer, consumer }
    }
}

// The memory of a ring: that of `pipewright-os`, or a model of it.

/// The memory that this side writes.
pub(crate) trait OwnMemory {
    /// Returns the size of the ring.
    fn bytes(&self) -> usize;
    /// Writes a word, after all earlier writes (release).
    fn publish(&self, word: usize, value: u64);
    /// Writes data that the other side does not read yet. Writes nothing outside of the ring.
    fn fill(&mut self, at: usize, bytes: &[u8]);
    /// Writes a word like `publish`. If both sides announce a word and then read the other's with `word_in_order`,
    /// at least one sees the other's announcement.
    fn announce(&self, word: usize, value: u64);
}

/// The memory that the other side writes.
pub(crate) trait PeerMemory {
    /// Returns the size of the ring.
    fn bytes(&self) -> usize;
    /// Reads a word, before all later reads (acquire).
    fn word(&self, word: usize) -> u64;
    /// Reads a word after all announcements of this side.
    fn word_in_order(&self, word: usize) -> u64;
    /// Reads the header of a record, each number once.
    fn numbers(&self, at: usize) -> io::Result<[u64; 4]>;
}

impl OwnMemory for Written {
    fn bytes(&self) -> usize {
        Written::bytes(self)
    }

    #[inline]
    fn publish(&self, word: usize, value: u64) {
        Written::publish(self, word, value);
    }

    #[inline]
    fn fill(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.get_mut(at, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    #[inline]
    fn announce(&self, word: usize, value: u64) {
        Written::announce(self, word, value);
    }
}

impl PeerMemory for Seen {
    fn bytes(&self) -> usize {
        Seen::bytes(self)
    }

    #[inline]
    fn word(&self, word: usize) -> u64 {
        Seen::word(self, word)
    }

    #[inline]
    fn word_in_order(&self, word: usize) -> u64 {
        Seen::word_in_order(self, word)
    }

    #[inline]
    fn numbers(&self, at: usize) -> io::Result<[u64; 4]> {
        Seen::numbers(self, at)
    }
}

// Positions, as pure arithmetic. They count bytes since the start and never go back. The offset in the ring is the
// position modulo the size of the ring, a power of two. 64 bits last for decades.

/// The alignment of records: a cache line.
const ALIGN_BYTES: usize = 64;

/// A place for a record, before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// The offset of the padding that fills the rest of the ring before it, if needed.
    pub(crate) pad: Option<usize>,
    /// The offset of the record in the ring.
    pub(crate) at: usize,
    /// The position after it.
    pub(crate) end: u64,
}

impl RecordPlace {
    /// Returns the offset of the body in the ring.
    pub(crate) fn body(&self) -> usize {
        self.at + RECORD_HEADER_BYTES
    }
}

/// Returns the size of a record with this length of body. `None`: no ring could hold it.
#[inline]
fn record_bytes(body: usize) -> Option<usize> {
    body.checked_add(RECORD_HEADER_BYTES)?.checked_next_multiple_of(ALIGN_BYTES)
}

/// Returns the place for a record after `head` if everything before `tail` is free. `None`: no room now.
#[inline]
fn place_after(capacity: usize, head: u64, tail: u64, body: usize) -> Option<RecordPlace> {
    let bytes = record_bytes(body)?;
    let free = (capacity as u64).checked_sub(head.checked_sub(tail)?)?;
    let at = offset(capacity, head);
    let left = capacity - at;
    let (pad, at, skipped) = if bytes <= left { (None, at, 0) } else { (Some(at), 0, left) };
    let taken = bytes.checked_add(skipped)? as u64;
    (taken <= free).then_some(RecordPlace { pad, at, end: head + taken })
}

/// Returns the offset of a position in the ring.
#[inline]
pub(crate) fn offset(capacity: usize, position: u64) -> usize {
    (position & (capacity as u64 - 1)) as usize
}

/// Returns the longest body that fits into every empty ring, wherever its positions are.
pub(crate) fn max_body_bytes(capacity: usize) -> usize {
    // A record lies in one piece. At the worst position the part before the end of the ring is one byte too short for
    // it, and is skipped: so it has room twice, or it might never fit.
    capacity / 2 - RECORD_HEADER_BYTES
}

/// Returns true if a counter may advance from `old` to `new` with this much room.
#[inline]
fn may_advance(old: u64, new: u64, room: u64) -> bool {
    new.checked_sub(old).is_some_and(|more| more <= room) && new % ALIGN_BYTES as u64 == 0
}

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
    fn new(capacity: usize) -> Producer {
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
        max_body_bytes(self.capacity)
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
        let place = place_after(self.capacity, self.head, self.tail, body);
        if place.is_some() && self.count % SAMPLE != 0 {
            return Ok(place);
        }
        // Read only when needed: the other side writes this cache line, and fetching it is slow.
        let tail = theirs.word(TAIL);
        if !may_advance(self.tail, tail, self.published - self.tail) {
            return Err(RingError::Tail);
        }
        self.tail = tail;
        self.high_water = self.high_water.max(self.head - tail);
        Ok(place_after(self.capacity, self.head, tail, body))
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
    fn new(capacity: usize) -> Consumer {
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
        let at = offset(self.capacity, self.tail);
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
        let bytes = usize::try_from(header.length).ok().and_then(record_bytes);
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
        let room = self.capacity as u64 - (self.head - self.tail);
        if !may_advance(self.head, head, room) {
            return Err(RingError::Head);
        }
        self.head = head;
        Ok(true)
    }

    /// Returns true if there are records, without reading them.
    #[inline]
    pub(crate) fn has_records(&self, theirs: &impl PeerMemory) -> bool {
        self.tail != self.head || theirs.word(HEAD) != self.head
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
        if self.tail != self.head || theirs.word_in_order(HEAD) != self.head {
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

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
#[cfg(not(loom))]
mod threads;

#[cfg(test)]
mod tests;
