//! Memory shared by two processes: one writes it, the other reads it.
//!
//! A memory object has one writer. The writer creates it ([`Written::create`]), maps it for writing, and makes
//! sure that nobody else ever can. Its handle is passed to the other process, which maps it for reading
//! ([`Seen::open`]). Two processes that talk in both directions use two objects.
//!
//! # Layout
//! [`CONTROL_BYTES`] of words, then the data. A word has 64 bits and is accessed only by atomic operations. Each is
//! alone in [`WORD_STRIDE`] bytes, so that no two share a cache line.
//!
//! # Why this is sound
//! The Rust compiler may assume that memory behind a `&[u8]` does not change, and that plain accesses are free
//! of races. Therefore:
//!
//! * Only this process writes *its own* objects. Once [`Written::create`] has returned, nobody can map the
//!   object for writing: the handle that is passed on does not allow it, and [`Seen::open`] checks the handle
//!   that it gets. A process that may inspect this one could have done so earlier: on Linux a process of the
//!   same user, through `/proc`, in the moment before the seal. Such a process can change our memory in other
//!   ways too (ptrace(2)), so it gains nothing. A `&mut [u8]` over the data is as exclusive as any other. This
//!   program cannot notice that another one reads the bytes, and the reader has to tolerate bytes that are being
//!   written.
//! * *The peer's* objects may change at any moment, whatever the protocol says, so there is never a reference
//!   to their data as plain bytes. Words are read by atomic loads. Data are copied out by instructions that
//!   are opaque to the compiler (`copy/`). Their effect on the abstract machine is that of a relaxed atomic
//!   load for each byte, which may race with any writer. The copy is private and is decoded afterwards:
//!   nothing is fetched twice.
//! * No access faults: the size of the object is checked and sealed, and every page exists before it is
//!   mapped. A fork of this process has no such mapping, and gets no access.
//!
//! A published word orders data. The writer stores it with `Release` after the data are in place; the reader
//! loads it before it copies, with a fence (`Acquire`) in between. Rust allows only relaxed loads of read-only
//! memory (`std::sync::atomic`, "Atomic accesses to read-only memory"). Between two processes the processor
//! implements this order, and both compilers are kept from moving accesses across it.

#[cfg(not(any(miri, pipewright_plain_memory)))]
mod call_error;
mod copy;
#[cfg(all(target_os = "linux", not(any(miri, pipewright_plain_memory))))]
mod linux;
#[cfg(any(target_os = "macos", test))]
mod rounded;
#[cfg(all(target_os = "linux", not(any(miri, pipewright_plain_memory))))]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(all(unix, not(any(miri, pipewright_plain_memory))))]
mod mapping;
#[cfg(all(target_os = "linux", any(miri, pipewright_plain_memory)))]
mod plain;
#[cfg(all(target_os = "linux", any(miri, pipewright_plain_memory)))]
use plain as imp;
#[cfg(test)]
mod tests;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::base::handle::Handle;
use imp::Mapping;

/// The size of the words at the start of an object.
pub const CONTROL_BYTES: usize = 4096;

/// The distance between words: two cache lines, because processors fetch lines in pairs.
pub const WORD_STRIDE: usize = 128;

/// The number of words of an object.
pub const WORDS: usize = CONTROL_BYTES / WORD_STRIDE;

/// The number of bytes that are read in place at once: as many as fit into registers.
pub const BLOCK_BYTES: usize = 64;

/// The maximum size of the data of an object.
pub const MOST_BYTES: usize = 1 << 30;

/// The options of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShmOptions {
    /// The size of the data in bytes: a multiple of a page, and at most [`MOST_BYTES`].
    pub bytes: usize,
    /// True to map all pages at once. Otherwise the first access to each page costs a fault.
    pub prefault: bool,
}

/// A memory object that only this process writes.
///
/// In a fork of this process it is empty, and writes to it do nothing.
///
/// # Drop
/// Removes the mapping. The memory is freed when the other side has released it too.
#[derive(Debug)]
pub struct Written {
    mapping: Mapping,
    handle: Handle,
}

/// A memory object that another process writes. In a fork of this process it is empty.
///
/// # Drop
/// Removes the mapping.
#[derive(Debug)]
pub struct Seen {
    mapping: Mapping,
}

impl Written {
    /// Creates an object filled with zeros.
    ///
    /// It has no name that others could find, and children don't inherit it.
    ///
    /// # Platform
    /// Linux: `memfd_create(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL)`, without the last flag before
    /// 6.3; `mmap`, then at once the seals `F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL`;
    /// `fallocate`, so that a lack of memory is an error here and does not end the process later (SIGBUS);
    /// `MADV_DONTFORK`, and `MADV_POPULATE_WRITE` if requested (5.14). macOS: `shm_open` under a random name,
    /// once for writing and once for reading, and `shm_unlink` at once; the handle is the one for reading.
    /// Windows: `CreateFileMappingW` of committed memory (`SEC_COMMIT`) without a name and with an access list
    /// that allows nobody, and `MapViewOfFile`; the handle is a read-only copy (`DuplicateHandle`), and
    /// because of the list no copy of it can get more rights.
    ///
    /// # Errors
    /// `Unsupported`: a processor of 32 bits. `InvalidInput`: the size is invalid. Otherwise the name of the failed call and its error: there is not
    /// enough memory, the limit on handles was reached, the system has no such objects, or a filter denies
    /// them.
    pub fn create(options: ShmOptions) -> io::Result<Written> {
        let size = size_of_object(options.bytes, usize::BITS)?;
        let (mapping, handle) = imp::create(size, options.prefault)?;
        Ok(Written { mapping, handle })
    }

    /// Returns the handle that the other process needs. It can be mapped only for reading.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the size of the data in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len() - CONTROL_BYTES
    }

    /// Writes a word after everything that was written before (`Release`). Does nothing for a word beyond
    /// [`WORDS`].
    #[inline]
    pub fn publish(&self, word: usize, value: u64) {
        if let Some(place) = self.mapping.word(word) {
            place.store(value, Ordering::Release);
        }
    }

    /// [Publishes](Self::publish) a word before everything that is read [in order](Seen::word_in_order)
    /// afterwards (a `SeqCst` fence). If two sides each announce a word and then read the other's, at least one of them
    /// sees the other's announcement.
    #[inline]
    pub fn announce(&self, word: usize, value: u64) {
        self.publish(word, value);
        fence(Ordering::SeqCst);
    }

    /// Returns all data.
    #[must_use]
    pub fn data(&mut self) -> &mut [u8] {
        let length = self.bytes();
        self.get_mut(0, length).unwrap_or_default()
    }

    /// Returns that many bytes of the data, if they are inside. This side may read and write them until a word
    /// allows the other side to read them.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, from: usize, count: usize) -> Option<&mut [u8]> {
        let place = self.mapping.place(from, count)?;
        // SAFETY: that many bytes are in a mapping that lives as long as `self`, which is mutably borrowed. No
        // other mapping of the object is writable (see above).
        Some(unsafe { std::slice::from_raw_parts_mut(place, count) })
    }

    /// Returns that many bytes of the data for reading, if they are inside.
    #[inline]
    #[must_use]
    pub fn get(&self, from: usize, count: usize) -> Option<&[u8]> {
        let place = self.mapping.place(from, count)?;
        // SAFETY: as for `get_mut`; nobody writes while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(place, count) })
    }
}

impl Seen {
    /// Maps an object that another process created and passed.
    ///
    /// # Platform
    /// Linux: `F_GET_SEALS` has to report that the object can neither shrink nor be mapped for writing any
    /// more. `fstat` has to report the exact size and, after `ftruncate` to that size (which removes pages
    /// behind the end), no holes. Then `mmap(PROT_READ)` and `MADV_DONTFORK`. macOS: `fstat`, whose size may be
    /// rounded up to whole pages, `mmap`. Windows:
    /// `NtQuerySection` has to report committed memory of that size that is not backed by a file, and after
    /// `MapViewOfFile(FILE_MAP_READ)` `VirtualQuery` has to report that all of it is readable.
    ///
    /// # Errors
    /// `InvalidData`: it is not such an object. Otherwise the system's error from mapping it.
    pub fn open(handle: &Handle, options: ShmOptions) -> io::Result<Seen> {
        let size = size_of_object(options.bytes, usize::BITS)?;
        Ok(Seen { mapping: imp::open(handle, size, options.prefault)? })
    }

    /// Returns the size of the data in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len() - CONTROL_BYTES
    }

    /// Reads a word before everything that is read afterwards (`Acquire`). A word beyond [`WORDS`] is 0.
    #[inline]
    #[must_use]
    pub fn word(&self, word: usize) -> u64 {
        let value = self.mapping.word(word).map_or(0, |place| place.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        value
    }

    /// Reads a word, as [`word`](Self::word) does, after everything that this thread has
    /// [announced](Written::announce), which contains the fence.
    #[inline]
    #[must_use]
    pub fn word_in_order(&self, word: usize) -> u64 {
        self.word(word)
    }

    /// Copies data into the buffer. Each byte is read once.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not inside the data. Nothing is copied.
    #[inline]
    pub fn copy_to(&self, from: usize, to: &mut [u8]) -> io::Result<()> {
        let place = self.place(from, to.len())?;
        // SAFETY: as many bytes as `to` has are mapped there, and `to` is mutably borrowed.
        unsafe { copy::out(place, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Appends data to the buffer. Each byte is read once.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not inside the data. `OutOfMemory`: the buffer could not grow.
    #[inline]
    pub fn append_to(&self, from: usize, count: usize, to: &mut Vec<u8>) -> io::Result<()> {
        let place = self.place(from, count)?;
        to.try_reserve(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let spare = to.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: that many bytes are mapped there, and the buffer has space for them.
        unsafe { copy::out(place, spare, count) };
        let length = to.len() + count;
        // SAFETY: these bytes have just been written.
        unsafe { to.set_len(length) };
        Ok(())
    }

    /// Folds data block by block, without a copy in memory. Each byte is read once; the blocks are values that
    /// nobody else can change.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not inside the data, or the count is not a multiple of [`BLOCK_BYTES`].
    #[inline]
    pub fn fold_blocks<B>(
        &self,
        from: usize,
        count: usize,
        start: B,
        mut add: impl FnMut(B, &[u8; BLOCK_BYTES]) -> B,
    ) -> io::Result<B> {
        let place = self.place(from, count)?;
        if count % BLOCK_BYTES != 0 {
            return Err(outside());
        }
        let mut folded = start;
        for at in (0..count).step_by(BLOCK_BYTES) {
            // SAFETY: that many bytes are mapped there.
            let block = unsafe { copy::block(place.wrapping_add(at)) };
            folded = add(folded, &block);
        }
        Ok(folded)
    }

    /// Returns four numbers from the data, each read once. The offset is a multiple of 8.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not inside the data, or the offset is not a multiple of 8.
    #[inline]
    pub fn numbers(&self, from: usize) -> io::Result<[u64; 4]> {
        let words = self.words(from, 32)?;
        let mut numbers = [0; 4];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = word;
        }
        Ok(numbers)
    }

    /// Returns an iterator over the data in place, as 8-byte numbers in native byte order, each read on
    /// demand. The offset and the count are multiples of 8.
    ///
    /// # Errors
    /// `InvalidInput`: the range is not inside the data, or one of them is not a multiple of 8.
    #[inline]
    pub fn words(&self, from: usize, count: usize) -> io::Result<Words<'_>> {
        let place = self.place(from, count)?;
        if from % 8 != 0 || count % 8 != 0 {
            return Err(outside());
        }
        // SAFETY: that many bytes are mapped there, at a multiple of 8, for as long as `self` is borrowed. The
        // reference is used only for relaxed atomic loads, which are allowed for 8 bytes of read-only memory.
        let words = unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), count / 8) };
        Ok(Words { words: words.iter() })
    }

    #[inline]
    fn place(&self, from: usize, count: usize) -> io::Result<*const u8> {
        self.mapping.place(from, count).map(<*mut u8>::cast_const).ok_or_else(outside)
    }
}

/// The data of a peer, read in place: see [`Seen::words`].
#[derive(Debug, Clone)]
pub struct Words<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
}

impl Iterator for Words<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.words.next().map(|word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.words.size_hint()
    }

    #[inline]
    fn fold<B, F: FnMut(B, u64) -> B>(self, start: B, mut add: F) -> B {
        self.words.fold(start, |sum, word| add(sum, word.load(Ordering::Relaxed)))
    }
}

impl ExactSizeIterator for Words<'_> {}

impl Mapping {
    #[inline]
    fn word(&self, word: usize) -> Option<&AtomicU64> {
        if word >= WORDS || !self.is_current() {
            return None;
        }
        // SAFETY: inside the mapping, which is at least that large.
        let place = unsafe { self.start().add(word * WORD_STRIDE) };
        // SAFETY: mapped for as long as `self` is, at a multiple of 8, and accessed only by atomic operations,
        // both here and by a peer that follows the protocol. A peer that does not can store whatever it likes;
        // the loads are atomic in any case.
        Some(unsafe { &*place.cast::<AtomicU64>() })
    }

    /// Returns the address of that many bytes of the data, if they are inside.
    #[inline]
    fn place(&self, from: usize, count: usize) -> Option<*mut u8> {
        let end = from.checked_add(count)?;
        if end > self.len() - CONTROL_BYTES || !self.is_current() {
            return None;
        }
        // SAFETY: inside the mapping, as was just checked, which belongs to this process.
        Some(unsafe { self.start().add(CONTROL_BYTES + from) })
    }
}

/// Returns the size of an object with that many bytes of data, for a processor of that many bits.
fn size_of_object(bytes: usize, bits: u32) -> io::Result<usize> {
    if bits < 64 {
        // A load of 64 bits may be a compare-and-swap there, which faults in memory that is mapped for reading.
        let words = "shared memory needs a processor of 64 bits";
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    let pages = bytes != 0 && bytes % CONTROL_BYTES == 0;
    if !pages || bytes > MOST_BYTES {
        let words = "the size of shared memory must be a multiple of 4096 bytes, at most 1 GiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    Ok(CONTROL_BYTES + bytes)
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "outside the shared memory")
}
