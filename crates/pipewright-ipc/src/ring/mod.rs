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
//! A peer that publishes wrong values mainly harms itself: a wrong `SLEEP` costs it a wake-up, or this side a superfluous
//! frame; a wrong `TAIL` or `HEAD` ends the connection.

mod consumer;
mod cursor;
mod memory;
#[cfg(all(test, loom))]
mod model;
mod producer;
#[cfg(test)]
#[cfg(not(loom))]
mod threads;

pub(crate) use consumer::Consumer;
pub(crate) use cursor::RecordPlace;
pub(crate) use memory::{OwnMemory, PeerMemory};
pub(crate) use producer::Producer;

/// The number of bytes written to this object's ring since the start of the connection.
const HEAD: usize = 0;
/// The number of bytes read from the other side's ring.
const TAIL: usize = 1;
/// Odd: the owner sleeps until something arrives at the socket. Grows by one with each change.
const SLEEP: usize = 2;

/// The header of a record: the 16 bytes of a frame's header, and two more numbers.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

/// A violation of the ring's protocol by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingError {
    /// TAIL passes the end of the records, or goes back.
    Tail,
    /// HEAD exceeds the size of the ring, or goes back.
    Head,
    /// A record does not fit at its position.
    Record,
    /// A header is invalid.
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
