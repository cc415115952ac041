//! The stored output of a stream: the last part in memory, which is counted for all outputs together, what was before
//! in a temporary file that all outputs share.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, mem};

use pipewright_os::base::files;

use super::queue::Queue;

/// The most bytes of a stream that are kept in memory.
///
/// Measured: outputs of 8 kB are printed 1.5 times as fast from memory as through the file, and larger ones no faster,
/// because chunks of 64 KiB go to the file at the speed of a copy. So 4 KiB is too little, and 64 KiB takes memory for
/// nothing.
const IN_MEMORY_BYTES: usize = 16 << 10;

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
    fn of_size(memory: &Arc<Memory>, spool: &Arc<Spool>, most: usize) -> Content {
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
    pub(super) held: AtomicUsize,
    pub(super) peak: AtomicUsize,
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

// The temporary file that holds the output which memory does not.
//
// All outputs share one file, so the number of descriptors does not grow with the number of outputs. The file consists
// of blocks. An output that does not fit into memory gets whole blocks, so that it is read back in large pieces; small
// outputs share blocks. A block is used again once nothing in it is needed.

/// The size of a block, and the most that is read or written at once.
// Smaller blocks cost more calls. Larger ones cost more of the file: each output in it may leave the rest of its last
// block unused.
pub(super) const BLOCK_BYTES: u64 = 128 << 10;

/// A file with reads and writes at offsets.
pub(crate) trait SpoolFile: Send + Sync + fmt::Debug {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
}

impl SpoolFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        files::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        files::write_at(self, bytes, offset)
    }
}

/// Opens the file, when the first output needs it.
pub(crate) type OpenSpool = Arc<dyn Fn() -> io::Result<Arc<dyn SpoolFile>> + Send + Sync>;

/// Opens an unlinked file in the directory for temporary files.
pub(super) fn open_temporary_file() -> io::Result<Arc<dyn SpoolFile>> {
    Ok(Arc::new(tempfile::tempfile()?))
}

/// A part of the file. Not empty, except where a type says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Extent {
    /// Removes the first bytes, and returns them.
    fn split_front(&mut self, bytes: u64) -> Extent {
        let bytes = bytes.min(self.bytes);
        let front = Extent { offset: self.offset, bytes };
        self.offset += bytes;
        self.bytes -= bytes;
        front
    }
}

/// The temporary file.
pub(super) struct Spool {
    open: OpenSpool,
    state: Mutex<State>,
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spool")
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    file: Option<Arc<dyn SpoolFile>>,
    /// The bytes in use of each block.
    pub(super) used: Vec<u32>,
    free: Vec<u32>,
    /// The rest of the block that small outputs share. It may be empty.
    pub(super) shared: Extent,
}

impl State {
    /// Takes a whole block.
    fn take_block(&mut self) -> Extent {
        let block = self.free.pop().unwrap_or_else(|| {
            self.used.push(0);
            u32::try_from(self.used.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(used) = self.used.get_mut(block as usize) {
            *used = BLOCK_BYTES as u32;
        }
        Extent { offset: u64::from(block) * BLOCK_BYTES, bytes: BLOCK_BYTES }
    }

    fn release(&mut self, mut extent: Extent) {
        while extent.bytes > 0 {
            let block = extent.offset / BLOCK_BYTES;
            let part = extent.split_front(BLOCK_BYTES - extent.offset % BLOCK_BYTES);
            let Some(used) = self.used.get_mut(block as usize) else { return };
            *used = used.saturating_sub(part.bytes as u32);
            if *used == 0 {
                self.free.push(block as u32);
            }
        }
    }
}

impl Spool {
    pub(super) fn new(open: OpenSpool) -> Arc<Spool> {
        Arc::new(Spool { open, state: Mutex::default() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves the counts consistent enough: at worst a block is not used again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file, which the first call opens.
    fn file(&self, state: &mut State) -> io::Result<Arc<dyn SpoolFile>> {
        match &state.file {
            Some(file) => Ok(Arc::clone(file)),
            None => Ok(Arc::clone(state.file.insert((self.open)()?))),
        }
    }

    /// Gives a part of the file free.
    pub(super) fn release(&self, extent: Extent) {
        self.lock().release(extent);
    }

    /// Writes bytes behind each other into blocks of their own. `room` is the rest of the block that the last call
    /// began. The part that was written before an error stays valid.
    pub(super) fn append(
        &self,
        bytes: &[u8],
        room: &mut Extent,
        to: &mut Extents,
    ) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let file = {
                let mut state = self.lock();
                let file = self.file(&mut state)?;
                if room.bytes == 0 {
                    *room = state.take_block();
                }
                file
            };
            let most = usize::try_from(room.bytes).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at(most);
            let (written, result) = write_all_at(&*file, now, room.offset);
            to.push(room.split_front(written));
            result?;
            rest = later;
        }
        Ok(())
    }

    /// Writes bytes, at most a block, to a block that small outputs share.
    pub(super) fn append_shared(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Extents> {
        let needed = bytes.len() as u64;
        debug_assert!(needed <= BLOCK_BYTES);
        let (file, extent) = {
            let mut state = self.lock();
            let file = self.file(&mut state)?;
            if state.shared.bytes < needed {
                let block = state.take_block();
                let rest = mem::replace(&mut state.shared, block);
                state.release(rest);
            }
            (file, state.shared.split_front(needed))
        };
        let extents = Extents::from_one(extent, Arc::clone(self));
        write_all_at(&*file, bytes, extent.offset).1.map(|()| extents)
    }

    /// Reads a part of the file.
    pub(super) fn read(&self, extent: Extent, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.file(&mut self.lock())?;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, extent.offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes all bytes. Returns the number that was written before an error.
pub(super) fn write_all_at(
    file: &dyn SpoolFile,
    bytes: &[u8],
    offset: u64,
) -> (u64, io::Result<()>) {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset + done as u64) {
            Ok(0) => return (done as u64, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done as u64, Err(error)),
        }
    }
    (done as u64, Ok(()))
}

/// Parts of the file, in order.
///
/// # Drop
/// Gives the parts free.
#[derive(Debug)]
pub(super) struct Extents {
    list: Vec<Extent>,
    spool: Arc<Spool>,
}

impl Extents {
    pub(super) fn new(spool: Arc<Spool>) -> Extents {
        Extents { list: Vec::new(), spool }
    }

    /// Takes a part over.
    pub(super) fn from_one(extent: Extent, spool: Arc<Spool>) -> Extents {
        Extents { list: vec![extent], spool }
    }

    /// Gives the only part away, if there is exactly one. The caller has to give it free.
    fn into_one(mut self) -> Result<Extent, Extents> {
        match *self.list {
            [extent] => {
                self.list.clear();
                Ok(extent)
            }
            _ => Err(self),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn push(&mut self, extent: Extent) {
        match self.list.last_mut() {
            _ if extent.bytes == 0 => {}
            Some(last) if last.offset + last.bytes == extent.offset => last.bytes += extent.bytes,
            _ => self.list.push(extent),
        }
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.list.iter().map(|extent| extent.bytes).sum()
    }

    /// Calls `work` with all bytes, in pieces of at most a block, and keeps them.
    pub(super) fn read<E>(
        &self,
        buffer: &mut [u8],
        mut work: impl FnMut(io::Result<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        for mut extent in self.list.iter().copied() {
            while extent.bytes > 0 {
                let piece = extent.split_front(buffer.len() as u64);
                let into = buffer.get_mut(..piece.bytes as usize).unwrap_or_default();
                let read = self.spool.read(piece, into);
                work(read.map(|()| &*into))?;
            }
        }
        Ok(())
    }

    /// Adds the parts of `other` behind these.
    pub(super) fn append(&mut self, mut other: Extents) {
        for extent in mem::take(&mut other.list) {
            self.push(extent);
        }
    }

    /// Calls `work` with all bytes, in pieces of at most a block, and gives each piece free after its call. `buffer`
    /// has the size of a block.
    pub(super) fn drain<E>(
        mut self,
        buffer: &mut [u8],
        mut work: impl FnMut(io::Result<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        for index in 0..self.list.len() {
            while let Some(extent) = self.list.get_mut(index).filter(|extent| extent.bytes > 0) {
                let piece = extent.split_front(buffer.len() as u64);
                let into = buffer.get_mut(..piece.bytes as usize).unwrap_or_default();
                let read = self.spool.read(piece, into);
                let result = work(read.map(|()| &*into));
                self.spool.release(piece);
                result?;
            }
        }
        Ok(())
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            let mut state = self.spool.lock();
            self.list.iter().for_each(|extent| state.release(*extent));
        }
    }
}

// The whole output of one command, which is shown later: in memory up to 8 MiB, and beyond that in a temporary file.

/// The most bytes that are kept in memory.
const MOST_IN_MEMORY_BYTES: usize = 8 << 20;

/// The output of one stream, for the tool.
#[derive(Debug)]
pub struct Spooled(Content);

impl Default for Spooled {
    fn default() -> Spooled {
        Spooled::with(MOST_IN_MEMORY_BYTES, Arc::new(open_temporary_file))
    }
}

impl Spooled {
    fn with(in_memory_bytes: usize, open: OpenSpool) -> Spooled {
        let (memory, spool) = (Memory::new(in_memory_bytes), Spool::new(open));
        Spooled(Content::of_size(&memory, &spool, in_memory_bytes))
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The temporary file cannot take them. What was added before stays.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(bytes)
    }

    /// Calls `work` with all bytes in pieces, and keeps them.
    ///
    /// # Errors
    /// The temporary file cannot be read back, or that of the function.
    pub fn read(&self, work: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.read(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn what_memory_may_not_hold_is_in_the_file_and_all_of_it_is_read_in_order() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let open = || {
            OPENED.fetch_add(1, Ordering::Relaxed);
            open_temporary_file()
        };
        let most = 10_000;
        let mut spooled = Spooled::with(most, Arc::new(open));
        let mut wanted = Vec::new();
        for piece in 0..300_u32 {
            let bytes = vec![piece as u8; 1 + (piece as usize * 37) % 1500];
            assert_eq!(OPENED.load(Ordering::Relaxed) > 0, wanted.len() > most);
            spooled.push(&bytes).unwrap();
            wanted.extend(bytes);
            assert!(spooled.0.memory.bytes().len() <= most);
        }
        for _ in 0..2 {
            let mut read = Vec::new();
            let mut add = |bytes: &[u8]| {
                read.extend_from_slice(bytes);
                Ok(())
            };
            spooled.read(&mut add).unwrap();
            assert!(read == wanted);
        }
        assert_eq!(OPENED.load(Ordering::Relaxed), 1);
    }
}
