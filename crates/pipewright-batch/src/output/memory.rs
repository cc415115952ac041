//! The memory that holds output: counted, and limited.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least capacity of a buffer.
const MIN_BUFFER_BYTES: usize = 64;

/// A count of the bytes that all buffers occupy, with a limit.
#[derive(Debug)]
pub(super) struct Memory {
    held: AtomicUsize,
    peak: AtomicUsize,
    limit: usize,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Arc<Memory> {
        Arc::new(Memory { held: AtomicUsize::new(0), peak: AtomicUsize::new(0), limit })
    }

    /// Counts this many bytes, unless that exceeds the limit.
    fn try_take(&self, bytes: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) => {
                self.peak.fetch_max(before + bytes, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns true if outputs that only wait may occupy memory: at most a quarter of the limit is in use.
    pub(super) fn is_plentiful(&self) -> bool {
        self.held.load(Ordering::Relaxed) <= self.limit / 4
    }

    /// Returns the number of bytes in use.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes in use so far.
    #[cfg(test)]
    pub(super) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Bytes in memory that are counted by their capacity.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// The counted capacity.
    counted: usize,
    memory: Arc<Memory>,
}

impl Buffer {
    pub(super) fn new(memory: &Arc<Memory>) -> Buffer {
        Buffer { bytes: Vec::new(), counted: 0, memory: Arc::clone(memory) }
    }

    /// Appends the bytes, if they fit into `most` bytes and into the memory. Otherwise returns false.
    pub(super) fn try_extend(&mut self, bytes: &[u8], most: usize) -> bool {
        let needed = self.bytes.len() + bytes.len();
        if needed > most {
            return false;
        }
        if needed > self.counted {
            let wanted = needed.next_power_of_two().max(MIN_BUFFER_BYTES).min(most).max(needed);
            if !self.memory.try_take(wanted - self.counted) {
                return false;
            }
            self.counted = wanted;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Appends the end of a line, also beyond the limit.
    pub(super) fn end_line(&mut self) {
        if self.bytes.len() == self.counted {
            self.memory.held.fetch_add(1, Ordering::Relaxed);
            self.counted += 1;
            self.bytes.reserve_exact(1);
        }
        self.bytes.push(b'\n');
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes that are counted.
    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    /// Removes the bytes, and keeps the memory for the next ones.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the bytes as a buffer of their own, and leaves this one empty.
    pub(super) fn take(&mut self) -> Buffer {
        let empty = Buffer::new(&self.memory);
        mem::replace(self, empty)
    }

    /// Gives back the memory beyond the bytes.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        let excess = self.counted.saturating_sub(self.bytes.capacity());
        self.counted -= excess;
        self.memory.give_back(excess);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.memory.give_back(self.counted);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes.len())
    }
}
