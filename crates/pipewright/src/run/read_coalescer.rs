//! Delays the next read, so that several small writes are read in one go.
//!
//! A child that writes its lines one by one wakes its reader for each: with two processors the
//! wake-ups cost more than the child itself. So after a small chunk the streams are left alone for
//! a moment, and then read in one go. The wait for the child's end and everything else goes on
//! meanwhile, so the nap delays no result; and where somebody watches a stream there are no naps.

use std::time::{Duration, Instant};

/// How long a child is left alone at first.
const AT_START: Duration = Duration::from_micros(300);
/// The first nap after a chunk that was not small; the next ones double.
const FIRST: Duration = Duration::from_micros(100);
/// The longest. In this time a fast child writes less than a pipe holds, or the chunk it leaves
/// behind is not small any more.
const LONGEST: Duration = Duration::from_millis(1);
/// A chunk that is not small: a quarter of a pipe.
const SMALL_BYTES: usize = 16 << 10;

/// The naps of one run: of both streams together, because the end of either wakes as much as a
/// line of the other.
#[derive(Debug, Default)]
pub(super) struct ReadCoalescer {
    length: Duration,
    until: Option<Instant>,
}

impl ReadCoalescer {
    /// Begins with a nap: a program takes longer than this to be loaded and to say anything.
    pub(super) fn at_start(now: Instant) -> ReadCoalescer {
        ReadCoalescer { length: AT_START, until: Some(now + AT_START) }
    }

    /// Notes that a chunk of that length came, and whether there was no room for more: then it says
    /// nothing about the child. (A limit of a few bytes has a small buffer, and a nap after each chunk
    /// made a child that floods us a hundred times slower.)
    pub(super) fn note(&mut self, bytes: usize, had_no_room: bool, now: Instant) {
        if bytes < SMALL_BYTES && !had_no_room {
            self.length = (self.length * 2).clamp(FIRST, LONGEST);
            self.until = Some(now + self.length);
        } else {
            *self = ReadCoalescer::default();
        }
    }

    /// Until when the streams are left alone, if they are.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the nap if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// Ends the nap.
    pub(super) fn end(&mut self) {
        self.until = None;
    }
}
