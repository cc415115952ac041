//! The stored output of a stream: the first part in the temporary file, the rest in memory, which is counted for all
//! outputs together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fmt, io, mem};

use super::queue::Queue;
use super::spool::{BLOCK_BYTES, Extent, Extents, Spool};

/// The most bytes of a stream that are kept in memory.
///
/// Measured: outputs of 8 kB are printed 1.5 times as fast from memory as through the file, and larger ones no faster,
/// because chunks of 64 KiB go to the file at the speed of a copy. So 4 KiB is too little, and 64 KiB takes memory for
/// nothing.
pub(super) const IN_MEMORY_BYTES: usize = 16 << 10;

/// Stored output of a stream.
#[derive(Debug)]
pub(super) struct Content {
    extents: Extents,
    /// The rest of the last block of the extents. It may be empty.
    room: Extent,
    memory: Buffer,
    /// The most bytes that are in memory.
    most_in_memory: usize,
    spool: Arc<Spool>,
}

impl Content {
    pub(super) fn new(memory: &Arc<Memory>, spool: &Arc<Spool>) -> Content {
        Content::of_size(memory, spool, IN_MEMORY_BYTES)
    }

    /// Returns content that keeps at most this number of bytes in memory.
    pub(super) fn of_size(memory: &Arc<Memory>, spool: &Arc<Spool>, most: usize) -> Content {
        Content {
            extents: Extents::new(Arc::clone(spool)),
            room: Extent::default(),
            memory: Buffer::new(memory),
            most_in_memory: most,
            spool: Arc::clone(spool),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.memory.is_empty()
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.extents.bytes() + self.memory.bytes().len() as u64
    }

    /// Returns the number of bytes in memory.
    #[cfg(test)]
    pub(super) fn in_memory_bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    /// Calls `work` with all bytes in pieces, at least once, and keeps them.
    ///
    /// # Errors
    /// The temporary file cannot be read back, or that of the function.
    pub(super) fn read(&self, mut work: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !self.extents.is_empty() {
            self.extents.read(&mut vec![0; BLOCK_BYTES as usize], |read| work(read?))?;
        }
        work(self.memory.bytes())
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The temporary file cannot take them. What was added before stays.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.memory.try_extend(bytes, self.most_in_memory) {
            return Ok(());
        }
        self.spill()?;
        // Small pieces are collected, so that each write to the file is large.
        if self.memory.try_extend(bytes, self.most_in_memory) {
            return Ok(());
        }
        self.spool.append(bytes, &mut self.room, &mut self.extents)
    }

    /// Adds everything of `other`, and leaves that empty.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub(super) fn append(&mut self, other: &mut Content) -> io::Result<()> {
        if !other.extents.is_empty() {
            self.spill()?;
            self.spool.release(mem::take(&mut self.room));
            self.room = mem::take(&mut other.room);
            self.extents.append(other.take_extents());
        }
        self.push(other.memory.bytes())?;
        other.memory.clear();
        Ok(())
    }

    /// Ends the last line, also if nothing more can be stored.
    pub(super) fn end_line(&mut self) {
        self.memory.end_line();
    }

    /// Writes what is in memory to the file.
    fn spill(&mut self) -> io::Result<()> {
        self.spool.append(self.memory.bytes(), &mut self.room, &mut self.extents)?;
        self.memory.clear();
        Ok(())
    }

    /// Makes the content as small as it can be, when nothing more is added and it may wait for long. If
    /// memory is not plentiful, it goes to the file.
    ///
    /// # Errors
    /// As for [`push`](Self::push). The content stays complete: it occupies memory.
    pub(super) fn finish(&mut self, plentiful: bool) -> io::Result<()> {
        let spilled = match self.memory.bytes() {
            _ if plentiful => Ok(()),
            [] => Ok(()),
            bytes if self.room.bytes >= bytes.len() as u64 => self.spill(),
            bytes => self.spool.append_shared(bytes).map(|extents| {
                self.extents.append(extents);
                self.memory.clear();
            }),
        };
        self.spool.release(mem::take(&mut self.room));
        self.memory.shrink();
        spilled
    }

    /// Gives away the only part in the file, if that is everything. The caller has to give it free.
    pub(super) fn into_extent(mut self) -> Result<Extent, Content> {
        if !self.memory.is_empty() || self.room.bytes > 0 {
            return Err(self);
        }
        let extents = self.take_extents();
        extents.into_one().map_err(|extents| {
            self.extents = extents;
            self
        })
    }

    fn take_extents(&mut self) -> Extents {
        mem::replace(&mut self.extents, Extents::new(Arc::clone(&self.spool)))
    }

    /// Returns the part in the file and the part in memory, which comes after it.
    pub(super) fn into_parts(mut self) -> (Extents, Buffer) {
        (self.take_extents(), self.memory.take())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if self.room.bytes > 0 {
            self.spool.release(self.room);
        }
    }
}

// The memory that holds output: counted, and limited.

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

// The parts that the outputs of all attempts share.

/// The memory, the temporary file and the queue of the thread that prints.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) memory: Arc<Memory>,
    pub(super) spool: Arc<Spool>,
    pub(super) queue: Arc<Queue>,
}

impl Shared {
    /// Returns content without bytes.
    pub(super) fn content(&self) -> Content {
        Content::new(&self.memory, &self.spool)
    }
}
