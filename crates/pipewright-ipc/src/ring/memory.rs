//! What a ring needs of memory: that of `pipewright-os`, or a model of it.

use std::io;

use pipewright_os::channel::shm::{Seen, Written};

/// Memory that this side writes.
pub(crate) trait Ours {
    /// How large the ring is.
    fn bytes(&self) -> usize;
    /// Writes a word, after everything before.
    fn publish(&self, word: usize, value: u64);
    /// Writes data that the other side does not read yet. Nothing outside is written.
    fn fill(&mut self, at: usize, bytes: &[u8]);
    /// As `publish`; of two sides that announce something and then look at the other's word in order, at
    /// least one sees what the other one announced.
    fn announce(&self, word: usize, value: u64);
}

/// Memory that the other side writes.
pub(crate) trait Theirs {
    /// How large the ring is.
    fn bytes(&self) -> usize;
    /// Reads a word, before everything that follows.
    fn word(&self, word: usize) -> u64;
    /// The same, after everything that was announced.
    fn word_in_order(&self, word: usize) -> u64;
    /// Reads the header of a record, each number once.
    fn numbers(&self, at: usize) -> io::Result<[u64; 4]>;
}

impl Ours for Written {
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

impl Theirs for Seen {
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
