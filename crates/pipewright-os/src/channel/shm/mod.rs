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
    /// `Unsupported`: a processor of 32 bits. `InvalidInput`: the size is invalid. Otherwise the name of the failed
    /// call and its error: there is not
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

// `memfd_create`, and seals.
#[cfg(all(target_os = "linux", not(any(miri, pipewright_plain_memory))))]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use rustix::io::Errno;
    use rustix::mm::{Advice, ProtFlags};
    use rustix::process::{Resource, getrlimit};

    use super::call_error::in_call;
    pub(super) use super::mapping::Mapping;
    use crate::base::handle::Handle;
    use crate::base::test_hooks::{Forced, is_forced};

    /// The seals of an object. It cannot shrink, so that no access faults beyond its end. It cannot grow or be filled
    /// behind its end, so that no process is charged for that. It cannot be mapped for writing again, written to, or
    /// given holes. The seals cannot be changed.
    const SEALS: SealFlags = SealFlags::SHRINK
        .union(SealFlags::GROW)
        .union(SealFlags::FUTURE_WRITE)
        .union(SealFlags::SEAL);

    pub(super) fn create(size: usize, prefault: bool) -> io::Result<(Mapping, Handle)> {
        let length = size as u64;
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < length) {
            // The kernel would also end this process with SIGXFSZ.
            let message = "the shared memory is larger than the file size limit (RLIMIT_FSIZE)";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let fd = memory()?;
        rustix::fs::ftruncate(&fd, length).map_err(in_call("ftruncate"))?;
        let mapping = Mapping::of(&fd, size, ProtFlags::READ | ProtFlags::WRITE)?;
        // After our own mapping, which must be writable, and before anything that takes time: until then, a
        // process that may inspect this one can open the object through `/proc` and map it for writing.
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(in_call("fcntl(F_ADD_SEALS)"))?;
        // Allocate every page before any is touched: a page that cannot be allocated then would raise SIGBUS and
        // end this process.
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length)
            .map_err(in_call("fallocate"))?;
        settle(&mapping, prefault.then_some(Advice::LinuxPopulateWrite))?;
        Ok((mapping, Handle::from(fd)))
    }

    pub(super) fn open(handle: &Handle, size: usize, prefault: bool) -> io::Result<Mapping> {
        let seals = rustix::fs::fcntl_get_seals(handle)
            .map_err(|_| wrong("it is not a sealable memory object"))?;
        if !seals.contains(SEALS) {
            return Err(wrong("it is not sealed"));
        }
        let stat = rustix::fs::fstat(handle)?;
        if u64::try_from(stat.st_size).ok() != Some(size as u64) {
            return Err(wrong("its size is not the announced one"));
        }
        // Pages behind the end are counted too, and could hide missing ones. Because of the seals, no others can be
        // added.
        rustix::fs::ftruncate(handle, size as u64)
            .map_err(|_| wrong("the pages behind its end cannot be removed"))?;
        let stat = rustix::fs::fstat(handle)?;
        // A missing page would be allocated when we read it, at our cost, or not at all.
        if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size as u64 {
            return Err(wrong("it has holes"));
        }
        let mapping = Mapping::of(handle.as_fd(), size, ProtFlags::READ)?;
        settle(&mapping, prefault.then_some(Advice::LinuxPopulateRead))?;
        Ok(mapping)
    }

    fn memory() -> io::Result<OwnedFd> {
        if is_forced(Forced::NoMemfd) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Without the flag the kernel writes a warning to its log, or refuses (vm.memfd_noexec). Before 6.3 the
        // flag does not exist.
        let made = match rustix::fs::memfd_create(c"pipewright", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(c"pipewright", flags),
            made => made,
        };
        made.map_err(in_call("memfd_create"))
    }

    fn settle(mapping: &Mapping, populate: Option<Advice>) -> io::Result<()> {
        // A child forked by other code of this program gets no mapping: it could otherwise read and write the data
        // of this connection.
        mapping.advise(Advice::LinuxDontFork).map_err(in_call("madvise"))?;
        if let Some(populate) = populate {
            // Ignored: before Linux 5.14 the advice does not exist, and pages are mapped when they are touched.
            let _ = mapping.advise(populate);
        }
        Ok(())
    }

    fn wrong(message: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("shared memory was refused: {message}"))
    }
}

// `shm_open` with a name that is removed at once.
#[cfg(target_os = "macos")]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::process;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::SystemTime;

    use rustix::fs::Mode;
    use rustix::io::{Errno, FdFlags};
    use rustix::mm::ProtFlags;
    use rustix::shm::{self, OFlags};

    use super::call_error::in_call;
    pub(super) use super::mapping::Mapping;
    use super::rounded::has_size;
    use crate::base::handle::Handle;

    pub(super) fn create(size: usize, _: bool) -> io::Result<(Mapping, Handle)> {
        let (writable, readable) = memory()?;
        // This works only once per object, as intended.
        rustix::fs::ftruncate(&writable, size as u64).map_err(in_call("ftruncate"))?;
        let mapping = Mapping::of(&writable, size, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok((mapping, Handle::from(readable)))
    }

    pub(super) fn open(handle: &Handle, size: usize, _: bool) -> io::Result<Mapping> {
        let stat = rustix::fs::fstat(handle)?;
        if !u64::try_from(stat.st_size).is_ok_and(|found| has_size(found, size as u64)) {
            let message = "shared memory was refused: its size is not the announced one";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Mapping::of(handle.as_fd(), size, ProtFlags::READ)
    }

    /// Opens the object for writing and for reading. Between these two calls it has a name, which may have at most
    /// 31 characters.
    fn memory() -> io::Result<(OwnedFd, OwnedFd)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let rights = Mode::RUSR | Mode::WUSR;
        for _ in 0..8 {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let nanos = now.map_or(0, |now| now.subsec_nanos());
            let name = format!("/pw{:x}.{count:x}.{nanos:x}", process::id());
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            let writable = match shm::open(name.as_str(), new, rights) {
                Ok(fd) => fd,
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(in_call("shm_open")(error)),
            };
            let readable = shm::open(name.as_str(), OFlags::RDONLY, Mode::empty());
            shm::unlink(name.as_str())?;
            let readable = readable.map_err(in_call("shm_open"))?;
            for fd in [&writable, &readable] {
                rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
            }
            return Ok((writable, readable));
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

// A mapping of a descriptor, unmapped on drop.
#[cfg(all(unix, not(any(miri, pipewright_plain_memory))))]
mod mapping {
    use std::ffi::c_void;
    use std::io;
    use std::os::fd::AsFd;
    use std::ptr::{self, NonNull};

    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    use super::call_error::in_call;
    use crate::base::generation::Generation;

    /// Mapped memory.
    #[derive(Debug)]
    pub(crate) struct Mapping {
        start: NonNull<u8>,
        length: usize,
        /// The process that has the mapping. In a fork the address may be used for something else.
        created_in: Generation,
    }

    // SAFETY: memory belongs to no thread. The types that own a mapping decide who may write it.
    unsafe impl Send for Mapping {}
    // SAFETY: it only returns addresses. The types that own a mapping decide what may be done there.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Maps the first `length` bytes of the object.
        pub(super) fn of(fd: impl AsFd, length: usize, rights: ProtFlags) -> io::Result<Mapping> {
            // SAFETY: a new mapping at an unused address, so nothing of ours changes.
            let start = unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, fd, 0) };
            let start = start.map_err(in_call("mmap"))?;
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Mapping { start, length, created_in: Generation::current() })
        }

        #[inline]
        pub(super) fn start(&self) -> *mut u8 {
            self.start.as_ptr()
        }

        #[inline]
        pub(super) fn len(&self) -> usize {
            self.length
        }

        /// Returns true if this process made the mapping. Returns false in a fork.
        #[inline]
        pub(super) fn is_current(&self) -> bool {
            self.created_in.is_current()
        }

        /// Gives the kernel advice on the mapping. Linux only.
        #[cfg(target_os = "linux")]
        pub(super) fn advise(&self, advice: rustix::mm::Advice) -> io::Result<()> {
            let start: *mut c_void = self.start.as_ptr().cast();
            // SAFETY: our own mapping; the advice used here changes no byte of it.
            Ok(unsafe { rustix::mm::madvise(start, self.length, advice) }?)
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            if !self.is_current() {
                return;
            }
            let start: *mut c_void = self.start.as_ptr().cast();
            // Ignored: a part of a larger mapping that cannot be split (ENOMEM) stays mapped. SAFETY: created by
            // `of` in this process, and no longer borrowed.
            let _ = unsafe { munmap(start, self.length) };
        }
    }
}

// An error with the name of the system call that failed. Several are involved, each with its own limits.
#[cfg(not(any(miri, pipewright_plain_memory)))]
mod call_error {
    use std::error::Error;
    use std::{fmt, io};

    /// The error of a system call.
    #[derive(Debug)]
    struct CallError {
        call: &'static str,
        error: io::Error,
    }

    /// Adds the name of the call to an error, which becomes the source.
    pub(super) fn in_call<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
        move |error| {
            let error = error.into();
            io::Error::new(error.kind(), CallError { call, error })
        }
    }

    impl fmt::Display for CallError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}: {}", self.call, self.error)
        }
    }

    impl Error for CallError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.error)
        }
    }
}

// The sizes that a system gives to an object: whole pages.
#[cfg(any(target_os = "macos", test))]
mod rounded {
    /// The sizes of pages of macOS: of Intel's processors, and of Apple's. A process under Rosetta sees the former, and
    /// its kernel has the latter.
    const PAGE_BYTES: [u64; 2] = [4 << 10, 16 << 10];

    /// Returns true if an object that was made with that size has the size that was found: the kernel rounds it up to
    /// whole pages.
    pub(super) fn has_size(found: u64, made: u64) -> bool {
        PAGE_BYTES.iter().any(|page| made.checked_next_multiple_of(*page) == Some(found))
    }

    #[cfg(test)]
    mod tests {
        use super::has_size;

        #[test]
        fn an_object_has_its_size_or_that_of_its_pages_and_no_other() {
            // A ring of 64 KiB behind its words, on pages of 4 KiB and of 16 KiB.
            let made = (4 << 10) + (64 << 10);
            for (found, fits) in [
                (made, true),
                (80 << 10, true),
                (made - 1, false),
                (made + 1, false),
                (made + (4 << 10), false),
                (96 << 10, false),
                (0, false),
            ] {
                assert_eq!(has_size(found, made), fits, "{found}");
            }
            assert!(!has_size(0, u64::MAX));
        }
    }
}

/// Copies memory that may change during the copy.
///
/// `memcpy` is unsuitable: the compiler may assume that its source does not change. A copy of changing bytes is
/// some mixture of old and new bytes, and has no other effect.
mod copy {
    use super::BLOCK_BYTES;
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
    use words as imp;

    /// Copies bytes that another process may be writing.
    ///
    /// # Safety
    /// `from` has to be readable and `to` writable for `count` bytes. Nobody else may use the bytes at `to`.
    #[inline]
    pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
        // SAFETY: promised by the caller.
        unsafe { imp::out(from, to, count) }
    }

    /// Returns a block of bytes that another process may be writing, as a value. It stays in registers if
    /// possible.
    ///
    /// # Safety
    /// `from` has to be readable for [`BLOCK_BYTES`] bytes.
    #[inline]
    pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
        // SAFETY: promised by the caller.
        unsafe { imp::block(from) }
    }

    // Relaxed atomic loads, which may race with any writer.
    mod words {
        use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

        #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
        use super::BLOCK_BYTES;

        /// Copies with a relaxed atomic load for every eight bytes, and for every single byte before and after those.
        ///
        /// # Safety
        /// As for [`super::out`].
        #[inline]
        pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
            let head = from.align_offset(8).min(count);
            let words = (count - head) / 8;
            // SAFETY: the first of these bytes, as promised by the caller.
            unsafe { by_bytes(from, to, 0..head) };
            for word in 0..words {
                let at = head + word * 8;
                let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                // SAFETY: eight bytes at a multiple of eight, touched only by atomic operations.
                let place = unsafe { &*from.cast::<AtomicU64>() };
                let value = place.load(Ordering::Relaxed);
                // SAFETY: space for eight bytes that only the caller uses.
                unsafe { to.cast::<u64>().write_unaligned(value) };
            }
            // SAFETY: the last of these bytes.
            unsafe { by_bytes(from, to, head + words * 8..count) };
        }

        /// Copies single bytes.
        ///
        /// # Safety
        /// As for [`super::out`], for that part of the bytes.
        unsafe fn by_bytes(from: *const u8, to: *mut u8, part: std::ops::Range<usize>) {
            for at in part {
                let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                // SAFETY: one readable byte, touched only by atomic operations.
                let place = unsafe { &*from.cast::<AtomicU8>() };
                let value = place.load(Ordering::Relaxed);
                // SAFETY: a byte that only the caller uses.
                unsafe { to.write(value) };
            }
        }

        /// # Safety
        /// As for [`super::block`].
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory)))))]
        #[inline]
        pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
            let mut block = [0; BLOCK_BYTES];
            // SAFETY: promised by the caller; the block is ours.
            unsafe { out(from, block.as_mut_ptr(), BLOCK_BYTES) };
            block
        }
    }

    // Instructions that are opaque to the compiler. It has to assume at most a relaxed atomic load of each byte.
    #[cfg(all(target_arch = "x86_64", not(any(miri, pipewright_plain_memory))))]
    mod imp {
        use std::arch::asm;
        use std::arch::x86_64::__m128i;
        use std::mem::{self, MaybeUninit};

        use super::{BLOCK_BYTES, words};

        /// # Safety
        /// As for [`super::out`].
        #[inline]
        pub(super) unsafe fn out(from: *const u8, to: *mut u8, count: usize) {
            if count < 1024 {
                // SAFETY: promised by the caller.
                return unsafe { words::out(from, to, count) };
            }
            // SAFETY: as above.
            unsafe { string_move(from, to, count) }
        }

        /// Loads 16 bytes at a time. The compiler does not merge atomic loads of eight bytes, so that a sum would be
        /// slower than the memory.
        ///
        /// # Safety
        /// As for [`super::block`].
        #[inline]
        pub(super) unsafe fn block(from: *const u8) -> [u8; BLOCK_BYTES] {
            let mut parts = [MaybeUninit::uninit(); BLOCK_BYTES / VECTOR_BYTES];
            for (number, part) in parts.iter_mut().enumerate() {
                // SAFETY: a part of the bytes promised by the caller.
                part.write(unsafe { load(from.wrapping_add(number * VECTOR_BYTES)) });
            }
            // SAFETY: an array of plain bytes, all of which were just written.
            unsafe { mem::transmute(parts) }
        }

        /// Moves all bytes with one instruction. The C library's `memcpy` uses it too for blocks of this size
        /// (measured: equal from 4 KiB on, and faster than loads of eight bytes from 1 KiB on).
        ///
        /// # Safety
        /// As for [`super::out`].
        #[inline]
        unsafe fn string_move(from: *const u8, to: *mut u8, count: usize) {
            // SAFETY: promised by the caller; the ABI guarantees a clear direction flag.
            unsafe {
                asm!(
                    "rep movsb",
                    inout("rcx") count => _,
                    inout("rsi") from => _,
                    inout("rdi") to => _,
                    options(nostack, preserves_flags)
                );
            }
        }

        const VECTOR_BYTES: usize = size_of::<__m128i>();

        /// Reads a vector of bytes that another process may be writing.
        ///
        /// # Safety
        /// `from` has to be readable for [`VECTOR_BYTES`] bytes.
        #[inline]
        unsafe fn load(from: *const u8) -> __m128i {
            let part;
            // SAFETY: promised by the caller; the instruction requires no alignment, and every x86_64 processor has
            // it.
            unsafe {
                asm!(
                    "movdqu {part}, [{from}]",
                    from = in(reg) from,
                    part = out(xmm_reg) part,
                    options(nostack, preserves_flags, readonly)
                );
            }
            part
        }
    }
}
