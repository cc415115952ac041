//! Memory that two processes share: one writes it, the other one reads it.
//!
//! A memory object has one writer. It is made by that process ([`Written::create`]), which maps it for
//! writing and then sees to it that nobody else ever can; its handle is passed to the other process,
//! which maps it for reading ([`Seen::open`]). Two processes that talk both ways have two objects.
//!
//! # Layout
//! [`CONTROL_BYTES`] of words, then the data. A word is 64 bits, stands alone in [`WORD_STRIDE`] bytes so
//! that no two of them share a line of a cache, and is only ever touched by atomic operations.
//!
//! # Why this is sound
//! Rust lets the compiler assume that memory behind a `&[u8]` does not change, and that plain accesses
//! are not raced. So:
//!
//! * What *we* write is ours alone to write: once [`Written::create`] has returned, nobody can map the
//!   object for writing (the handle that is passed on cannot be; [`Seen::open`] checks that of
//!   what it is given). Who may look into this process could have done so before: on Linux a process of the
//!   same user, through `/proc`, in the moment before the seal. Such a process can change any memory of ours
//!   by other ways (ptrace(2)), so that is no more than it could do. A `&mut [u8]` over it is as exclusive as any other: that somebody outside of
//!   this program looks on changes nothing that the program could notice, and what a reader sees of bytes
//!   that are being written is the reader's business.
//! * What the *peer* writes may change at any moment, whatever the protocol says, so there is never a
//!   reference to it. Words are read by atomic loads. Data is copied out by instructions that the
//!   compiler does not look into (`copy/`); what they do to the abstract machine is what a relaxed
//!   atomic load for each byte would do, which may be raced by anybody. What has been copied is private,
//!   and is decoded after that: nothing is fetched twice.
//! * An access never faults: the object's size is checked and sealed, and every page of it is there
//!   before it is mapped. A fork of this process, which has no such mapping, is given nothing.
//!
//! A published word orders data: the writer stores it with `Release` after the data is in place, the
//! reader loads it before it copies, with a fence (`Acquire`) in between: of memory that cannot be written to
//! a relaxed load is the only one that Rust allows (`std::sync::atomic`, "Atomic accesses to read-only
//! memory"). Between two processes that is what the processor
//! makes of it, and both compilers are kept from moving anything across.

#[cfg(not(any(miri, pipewright_plain_memory)))]
mod call_error;
mod copy;
#[cfg(all(target_os = "linux", not(any(miri, pipewright_plain_memory))))]
mod linux;
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

/// How much of an object is words.
pub const CONTROL_BYTES: usize = 4096;

/// How far apart words are: two lines of a cache, because processors fetch lines in pairs.
pub const WORD_STRIDE: usize = 128;

/// How many words an object has.
pub const WORDS: usize = CONTROL_BYTES / WORD_STRIDE;

/// How much data is read at once where it is not copied out: what fits into registers.
pub const BLOCK_BYTES: usize = 64;

/// The most data that an object may have.
pub const MOST_BYTES: usize = 1 << 30;

/// How an object is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShmOptions {
    /// How much data it has, in bytes: a multiple of a page, and at most [`MOST_BYTES`].
    pub bytes: usize,
    /// Whether its pages are mapped at once. Else each costs a fault when it is first touched.
    pub prefault: bool,
}

/// A memory object that this process writes, and nobody else.
///
/// In a fork of this process nothing is written, and nothing is there.
///
/// # Drop
/// Takes the mapping away. The memory goes when the other side has let go of it too.
#[derive(Debug)]
pub struct Written {
    mapping: Mapping,
    handle: Handle,
}

/// A memory object that another process writes. In a fork of this process nothing is there.
///
/// # Drop
/// Takes the mapping away.
#[derive(Debug)]
pub struct Seen {
    mapping: Mapping,
}

impl Written {
    /// Makes an object. All its bytes are 0.
    ///
    /// It has no name that anybody could find, and is not inherited by children.
    ///
    /// # Platform
    /// Linux: `memfd_create(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL)`, without the last one
    /// before 6.3; `mmap`, then at once the seals `F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
    /// F_SEAL_SEAL`; `fallocate`, so that a machine without memory says so here and does not end the
    /// process later (SIGBUS); `MADV_DONTFORK`, `MADV_POPULATE_WRITE` where that is asked for
    /// (5.14). macOS:
    /// `shm_open` under a random name, once for writing and once for reading, and `shm_unlink` at once;
    /// the handle is the one for reading. Windows: `CreateFileMappingW` of the system's own memory
    /// (`SEC_COMMIT`), without a name and with nobody in its access list, and `MapViewOfFile`; the handle
    /// is a copy that may read (`DuplicateHandle`), and with that list no copy of it may do more.
    ///
    /// # Errors
    /// The size is none (`InvalidInput`); there is no memory, or no room for another handle; the system
    /// has no such objects, or a filter denies them. It names the call.
    pub fn create(options: ShmOptions) -> io::Result<Written> {
        let size = size_of_object(options.bytes)?;
        let (mapping, handle) = imp::create(size, options.prefault)?;
        Ok(Written { mapping, handle })
    }

    /// What the other process needs to see the object: it can be mapped for reading only.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How much data the object has, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len() - CONTROL_BYTES
    }

    /// Writes a word, after everything that was written before (`Release`). A word beyond
    /// [`WORDS`] is none, and nothing is written.
    #[inline]
    pub fn publish(&self, word: usize, value: u64) {
        if let Some(place) = self.mapping.word(word) {
            place.store(value, Ordering::Release);
        }
    }

    /// As [`publish`](Self::publish), before everything that is read
    /// [in order](Seen::word_in_order) afterwards: of two sides that announce something and then look, at
    /// least one sees what the other one announced (a fence, `SeqCst`).
    #[inline]
    pub fn announce(&self, word: usize, value: u64) {
        self.publish(word, value);
        fence(Ordering::SeqCst);
    }

    /// All of the data.
    #[must_use]
    pub fn data(&mut self) -> &mut [u8] {
        let length = self.bytes();
        self.get_mut(0, length).unwrap_or_default()
    }

    /// So many bytes from there on, if they are inside: ours to read and write until a word says that
    /// the other side may read them.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, from: usize, count: usize) -> Option<&mut [u8]> {
        let place = self.mapping.place(from, count)?;
        // SAFETY: that many bytes stand there in a mapping that lives as long as `self`, which is
        // borrowed mutably; no other mapping of the object can be written (see above).
        Some(unsafe { std::slice::from_raw_parts_mut(place, count) })
    }

    /// The same, to look at.
    #[inline]
    #[must_use]
    pub fn get(&self, from: usize, count: usize) -> Option<&[u8]> {
        let place = self.mapping.place(from, count)?;
        // SAFETY: as for `get_mut`; nobody writes while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(place, count) })
    }
}

impl Seen {
    /// Maps an object that another process has made, and has passed the handle of.
    ///
    /// # Platform
    /// Linux: `F_GET_SEALS` has to say that it can never shrink and that nobody can map it for writing
    /// any more, `fstat` that it has exactly that size, and after `ftruncate` to just that size, which takes
    /// away what is behind its end, that it has no holes; then `mmap(PROT_READ)` and
    /// `MADV_DONTFORK`. macOS: `fstat`, `mmap`. Windows: `NtQuerySection` has to say that it is no file, all there, and
    /// of that size, and after `MapViewOfFile(FILE_MAP_READ)` `VirtualQuery` that all of it can be read.
    ///
    /// # Errors
    /// `InvalidData`: it is no such object. What the system says of mapping it.
    pub fn open(handle: &Handle, options: ShmOptions) -> io::Result<Seen> {
        let size = size_of_object(options.bytes)?;
        Ok(Seen { mapping: imp::open(handle, size, options.prefault)? })
    }

    /// How much data the object has, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len() - CONTROL_BYTES
    }

    /// Reads a word, before everything that is read afterwards (`Acquire`). One beyond [`WORDS`] is 0.
    #[inline]
    #[must_use]
    pub fn word(&self, word: usize) -> u64 {
        let value = self.mapping.word(word).map_or(0, |place| place.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        value
    }

    /// As [`word`](Self::word), after what this thread has [announced](Written::announce) before: the fence
    /// is there.
    #[inline]
    #[must_use]
    pub fn word_in_order(&self, word: usize) -> u64 {
        self.word(word)
    }

    /// Copies what stands there in the data. Each byte is read once.
    ///
    /// # Errors
    /// `InvalidInput`: the place is not inside the data; nothing is copied.
    #[inline]
    pub fn copy_to(&self, from: usize, to: &mut [u8]) -> io::Result<()> {
        let place = self.place(from, to.len())?;
        // SAFETY: as many bytes as `to` has are mapped there, and `to` is borrowed mutably.
        unsafe { copy::out(place, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Appends what stands there in the data to the buffer. Each byte is read once.
    ///
    /// # Errors
    /// `InvalidInput`: the place is not inside the data. `OutOfMemory`: the buffer could not grow.
    #[inline]
    pub fn append_to(&self, from: usize, count: usize, to: &mut Vec<u8>) -> io::Result<()> {
        let place = self.place(from, count)?;
        to.try_reserve(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let spare = to.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: that many bytes are mapped there, and there is room for them in the buffer.
        unsafe { copy::out(place, spare, count) };
        let length = to.len() + count;
        // SAFETY: they have just been written.
        unsafe { to.set_len(length) };
        Ok(())
    }

    /// Folds what stands there in the data, block by block, without a copy of it in memory. Each byte is
    /// read once; what is shown is a value that nobody else can change.
    ///
    /// # Errors
    /// `InvalidInput`: the place is not inside the data, or the count no multiple of [`BLOCK_BYTES`].
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

    /// Four numbers that stand there in the data, each read once; the place is a multiple of 8.
    ///
    /// # Errors
    /// `InvalidInput`: the place is not inside the data, or no multiple of 8.
    #[inline]
    pub fn numbers(&self, from: usize) -> io::Result<[u64; 4]> {
        let words = self.words(from, 32)?;
        let mut numbers = [0; 4];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = word;
        }
        Ok(numbers)
    }

    /// The data there, in place: numbers of 8 bytes in the machine's order, each read when it is
    /// asked for. The place and the count are multiples of 8.
    ///
    /// # Errors
    /// `InvalidInput`: the place is not inside the data, or no multiple of 8.
    #[inline]
    pub fn words(&self, from: usize, count: usize) -> io::Result<Words<'_>> {
        let place = self.place(from, count)?;
        if from % 8 != 0 || count % 8 != 0 {
            return Err(outside());
        }
        // SAFETY: that many bytes are mapped there for as long as `self` is borrowed, at a multiple
        // of 8; nothing but relaxed atomic loads is ever done through the reference, which are allowed
        // for 8 bytes of memory that is mapped for reading only.
        let words = unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), count / 8) };
        Ok(Words { words: words.iter() })
    }

    #[inline]
    fn place(&self, from: usize, count: usize) -> io::Result<*const u8> {
        self.mapping.place(from, count).map(<*mut u8>::cast_const).ok_or_else(outside)
    }
}

/// Data of a peer, read in place: see [`Seen::words`].
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
        if word >= WORDS || !self.is_here() {
            return None;
        }
        // SAFETY: inside the mapping, which is at least that large.
        let place = unsafe { self.start().add(word * WORD_STRIDE) };
        // SAFETY: mapped for as long as `self` is, at a multiple of 8, and touched by atomic operations
        // only: here, and by a peer that keeps to the protocol. What one that does not does to it is not
        // this program's to order: the loads are atomic whoever stores.
        Some(unsafe { &*place.cast::<AtomicU64>() })
    }

    /// So many bytes of the data, if they are inside.
    #[inline]
    fn place(&self, from: usize, count: usize) -> Option<*mut u8> {
        let end = from.checked_add(count)?;
        if end > self.len() - CONTROL_BYTES || !self.is_here() {
            return None;
        }
        // SAFETY: inside the mapping, as was just checked, which is one of this process.
        Some(unsafe { self.start().add(CONTROL_BYTES + from) })
    }
}

fn size_of_object(bytes: usize) -> io::Result<usize> {
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
