//! The memory of a ring: that of `pipewright-os`, or a model of it.

use std::io;

use pipewright_os::channel::shm::{Seen, Written};

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
