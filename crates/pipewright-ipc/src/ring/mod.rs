//! Messages through memory that two processes share: a ring in each direction.
//!
//! Each side has one object that it alone writes: its words, and the ring that it fills. Who fills a
//! ring says how far (`HEAD`), who empties it says how far (`TAIL`), each in its own object, and both
//! know from that where the next record is: no position is ever taken from the other side, only counts,
//! and these are checked.
//!
//! A record is 32 bytes of header, the body, and as much as is missing to a multiple of 64. It never
//! goes around the end of the ring: what is left there is filled by a record of kind `PAD`.
//!
//! # Who wakes whom
//! Nobody sleeps on memory: who has nothing to do waits for the socket, which also tells of the death of
//! the other side. Before that it says so in its own word (`SLEEP` becomes odd) and looks once more. Who
//! has filled in a record looks whether the other side sleeps, and only then writes a frame to the
//! socket, once for every sleep. What both sides write and then look at is in one order for both, so one of
//! them sees the other: no wake-up is lost (`model.rs` has it checked in every order).
//!
//! A peer that lies harms itself: a wrong `SLEEP` costs it a wake-up or us a frame too many, a wrong
//! `TAIL` or `HEAD` ends the connection.

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
pub(crate) use cursor::Place;
pub(crate) use memory::{Ours, Theirs};
pub(crate) use producer::Producer;

/// How far the ring of this object is filled, in bytes since the start of the connection.
const HEAD: usize = 0;
/// How far the other side's ring is emptied.
const TAIL: usize = 1;
/// Odd: its owner sleeps until something arrives at the socket. Grows by one at each change.
const SLEEP: usize = 2;

/// What a record begins with: the sixteen bytes of a header, and two numbers more.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

/// What a peer can do to a ring that no peer should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It says to have emptied more than is there, or less than before.
    Tail,
    /// It says to have filled in more than fits, or less than before.
    Head,
    /// A record does not fit where it stands.
    Record,
    /// A header is none.
    Header(crate::wire::Invalid),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Broken::Tail => "the ring was emptied further than it is filled",
            Broken::Head => "the ring was filled further than it is large",
            Broken::Record => "a record of the ring does not fit where it stands",
            Broken::Header(invalid) => return invalid.fmt(f),
        })
    }
}

/// Both directions between two processes.
#[derive(Debug)]
pub(crate) struct Ring<O, T> {
    pub(crate) ours: O,
    pub(crate) theirs: T,
    pub(crate) out: Producer,
    pub(crate) into: Consumer,
}

impl<O: Ours, T: Theirs> Ring<O, T> {
    pub(crate) fn new(ours: O, theirs: T) -> Ring<O, T> {
        let out = Producer::new(ours.bytes());
        let into = Consumer::new(theirs.bytes());
        Ring { ours, theirs, out, into }
    }
}
