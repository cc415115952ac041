//! The temporary file that holds the output which memory does not.
//!
//! All outputs share one file, so the number of descriptors does not grow with the number of outputs. The file consists
//! of blocks. An output that does not fit into memory gets whole blocks, so that it is read back in large pieces; small
//! outputs share blocks. A block is used again once nothing in it is needed.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright_os::base::files;

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
struct State {
    file: Option<Arc<dyn SpoolFile>>,
    /// The bytes in use of each block.
    used: Vec<u32>,
    free: Vec<u32>,
    /// The rest of the block that small outputs share. It may be empty.
    shared: Extent,
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

    fn lock(&self) -> MutexGuard<'_, State> {
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

    /// Returns the number of blocks that the file has had.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.lock().used.len()
    }

    /// Returns the number of blocks in use, without the one that small outputs share.
    #[cfg(test)]
    pub(super) fn used_blocks(&self) -> usize {
        let state = self.lock();
        let shared = u32::try_from(state.shared.bytes).unwrap();
        let unused = |used: &&u32| **used > 0 && !(shared > 0 && **used == shared);
        state.used.iter().filter(unused).count()
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
    pub(super) fn into_one(mut self) -> Result<Extent, Extents> {
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
