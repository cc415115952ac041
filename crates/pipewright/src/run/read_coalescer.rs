//! Delays the next read, so that several small writes are read in one go.
//!
//! A child that writes its lines one by one wakes its reader for each: with two processors the wake-ups cost more than
//! the child itself. So after a small chunk the streams are not read for a moment. Meanwhile the run still waits for
//! the child's end and everything else, so the delay makes no result late. Streams that somebody watches are
//! delayed only if the command says so.

use std::time::{Duration, Instant};

/// The delay after the start. A program takes about this long to load and to write anything, and a short one has exited
/// by then.
const AT_START: Duration = Duration::from_millis(1);
/// The first delay after a chunk that was not small. Each further delay is twice as long.
const FIRST: Duration = Duration::from_micros(100);
/// The longest delay. In this time a fast child writes less than a pipe holds, or the resulting chunk is not small.
const LONGEST: Duration = Duration::from_millis(1);
/// The size from which a chunk is not small: a quarter of a pipe.
const SMALL_BYTES: usize = 16 << 10;

/// The read delay of one run. It is common to both streams, because a wake-up costs the same for either.
#[derive(Debug, Default)]
pub(super) struct ReadCoalescer {
    length: Duration,
    until: Option<Instant>,
}

impl ReadCoalescer {
    /// Starts with a delay.
    pub(super) fn at_start(now: Instant) -> ReadCoalescer {
        ReadCoalescer { length: AT_START, until: Some(now + AT_START) }
    }

    /// Records a chunk of this length. If it filled its buffer, its length says nothing about the child. (A limit of a few
    /// bytes has a small buffer, and a delay after each chunk made a child that writes without pause a hundred times
    /// slower.)
    pub(super) fn note(&mut self, bytes: usize, filled_buffer: bool, now: Instant) {
        if bytes < SMALL_BYTES && !filled_buffer {
            self.length = (self.length * 2).clamp(FIRST, LONGEST);
            self.until = Some(now + self.length);
        } else {
            *self = ReadCoalescer::default();
        }
    }

    /// Returns the end of the current delay, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the delay if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// Ends the delay.
    pub(super) fn end(&mut self) {
        self.until = None;
    }
}
