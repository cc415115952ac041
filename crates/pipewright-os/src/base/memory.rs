//! Memory: hints about large buffers, searches in them, aligned buffers for direct I/O, and buffers for secrets.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::{fmt, io};

/// Requests huge pages for a large buffer.
///
/// Page faults dominate the time to collect a gigabyte, and one 2 MiB page replaces 512 small ones.
/// Only a hint: without effect it does no harm.
///
/// # Platform
/// Linux: `madvise(MADV_HUGEPAGE)` on every page of the buffer; elsewhere nothing.
pub fn advise_huge_pages(buffer: &mut Vec<u8>) {
    imp::advise_huge_pages(buffer);
}

/// Makes all threads allocate from one heap. For a program whose other threads allocate next to
/// nothing: otherwise each thread gets a heap of its own, which is mapped when the thread starts and
/// unmapped at the end of the program.
///
/// # Platform
/// glibc: `mallopt(M_ARENA_MAX)`; elsewhere nothing.
pub fn use_one_heap() {
    imp::use_one_heap();
}

/// Returns the size of a memory page, in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    imp::page_bytes()
}

/// Faults in the memory that the next read will fill, if it is not yet backed by pages.
///
/// Otherwise the read faults, and the kernel clears the page while it holds the pipe's lock and the
/// writer waits.
///
/// # Platform
/// Linux 5.14 and later: `madvise(MADV_POPULATE_WRITE)`, 2 MiB at a time, never more than that
/// ahead; elsewhere nothing.
pub fn prefault_next(buffer: &mut Vec<u8>) {
    imp::prefault_next(buffer);
}

/// Returns the position of the first such byte.
///
/// std has this function, but only internally. Its public search in bytes compares them one by one,
/// and its search in text takes twice as long.
///
/// # Platform
/// `memchr` of the C library, which is optimized for the processor.
///
/// ```
/// # use pipewright_os::base::memory::find;
/// assert_eq!(find(b"ab\ncd\n", b'\n'), Some(2));
/// assert_eq!(find(b"", b'\n'), None);
/// ```
#[inline]
#[must_use]
pub fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    imp::find(bytes, byte)
}

/// Returns the position of the last such byte.
///
/// # Platform
/// Linux: `memrchr`; elsewhere a byte-by-byte search.
///
/// ```
/// # use pipewright_os::base::memory::find_last;
/// assert_eq!(find_last(b"ab\ncd\nef", b'\n'), Some(5));
/// assert_eq!(find_last(b"", b'\n'), None);
/// ```
#[must_use]
pub fn find_last(bytes: &[u8], byte: u8) -> Option<usize> {
    imp::find_last(bytes, byte)
}

/// A byte buffer whose start is a multiple of some power of two.
///
/// Every byte is initialized from the start.
///
/// ```
/// # use pipewright_os::base::memory::AlignedBuf;
/// let mut buffer = AlignedBuf::zeroed(8192, 4096)?;
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(buffer.as_ptr() as usize % 4096, 0);
/// buffer.truncate(5);
/// assert_eq!(&buffer[..], b"hello");
/// buffer.expand();
/// assert_eq!(buffer.len(), 8192);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AlignedBuf {
    // Not a Box: the kernel may write to the memory while the buffer moves to another owner, and
    // each move of a Box would assert unique access.
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its memory, which is bound to no thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Returns `len` zero bytes, aligned to `align`.
    ///
    /// # Errors
    /// `InvalidInput`: `align` is not a power of two. `OutOfMemory`: the allocation failed.
    pub fn zeroed(len: usize, align: usize) -> io::Result<AlignedBuf> {
        let layout = Layout::from_size_align(len, align).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "invalid size or alignment")
        })?;
        if len == 0 {
            // No memory, but still an aligned address.
            let start = NonNull::new(ptr::without_provenance_mut(layout.align()));
            let start = start.ok_or(io::ErrorKind::InvalidInput)?;
            return Ok(AlignedBuf { start, len, layout });
        }
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AlignedBuf { start, len, layout })
    }

    /// Copies these bytes to a new buffer, aligned to `align`.
    ///
    /// # Errors
    /// As for [`AlignedBuf::zeroed`].
    pub fn copy_of(bytes: &[u8], align: usize) -> io::Result<AlignedBuf> {
        let mut new = AlignedBuf::zeroed(bytes.len(), align)?;
        new.copy_from_slice(bytes);
        Ok(new)
    }

    /// Returns the length that the buffer was made with.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// Returns the alignment of the first byte.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }

    /// Shortens the buffer to `len`; a longer `len` changes nothing. Frees no memory.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Restores the length that the buffer was made with. The bytes past the shortened length are unchanged.
    pub fn expand(&mut self) {
        self.len = self.capacity();
    }

    /// Returns the address of the bytes, for a kernel that writes to them in the background.
    #[cfg(all(feature = "disk", any(target_os = "linux", windows)))]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Default for AlignedBuf {
    /// Returns a buffer without bytes or memory.
    fn default() -> AlignedBuf {
        AlignedBuf { start: NonNull::dangling(), len: 0, layout: Layout::new::<()>() }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes, which this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and mutably borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("alignment", &self.alignment())
            .finish()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity() > 0 {
            // SAFETY: allocated with that layout, and freed once.
            unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// Bytes that are not written into core files, and are overwritten when they are dropped.
///
/// # Platform
/// Linux: pages of their own, with `madvise(MADV_DONTDUMP)`. Elsewhere they are only overwritten.
///
/// ```
/// # use pipewright_os::base::memory::UndumpedBytes;
/// let mut key = UndumpedBytes::zeroed(32)?;
/// key[0] = 7;
/// assert_eq!((key.len(), key[0], key[1]), (32, 7, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UndumpedBytes(undumped::Memory);

impl UndumpedBytes {
    /// Allocates that many zeros.
    ///
    /// # Errors
    /// No memory is available.
    pub fn zeroed(bytes: usize) -> io::Result<UndumpedBytes> {
        undumped::Memory::zeroed(bytes).map(UndumpedBytes)
    }
}

impl Deref for UndumpedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for UndumpedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Drop for UndumpedBytes {
    fn drop(&mut self) {
        for byte in self.0.bytes_mut() {
            // SAFETY: a reference can be written to. Volatile, because nothing reads the zeros.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

impl fmt::Debug for UndumpedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndumpedBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

// Pages of their own, by `mmap`.
#[cfg(unix)]
mod undumped {
    use std::io;
    use std::ptr::NonNull;
    use std::slice;

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    /// A private mapping.
    pub(super) struct Memory {
        start: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: the mapping belongs to this value alone, as the memory of a box does.
    unsafe impl Send for Memory {}
    // SAFETY: as above; a shared reference only reads.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn zeroed(bytes: usize) -> io::Result<Memory> {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at a place that the kernel chooses touches no other memory.
            let start = unsafe {
                mmap_anonymous(std::ptr::null_mut(), bytes.max(1), protection, MapFlags::PRIVATE)?
            };
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            let memory = Memory { start, bytes };
            #[cfg(target_os = "linux")]
            {
                use rustix::mm::{Advice, madvise};
                let start = memory.start.as_ptr().cast();
                // SAFETY: the pages are those of this mapping, and the advice does not change their contents.
                unsafe { madvise(start, bytes.max(1), Advice::LinuxDontDump)? };
            }
            Ok(memory)
        }

        pub(super) fn bytes(&self) -> &[u8] {
            // SAFETY: the mapping has that many initialized bytes, and lives as long as `self`.
            unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
        }

        pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
            // SAFETY: as above, and `self` is borrowed exclusively.
            unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping belongs to this value, and no reference to it is left. Ignored: it cannot fail for
            // one.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes.max(1)) };
        }
    }
}

// Memory of the heap.
#[cfg(windows)]
mod undumped {
    use std::io;

    /// A buffer that never grows, and so leaves no copy behind.
    pub(super) struct Memory(Box<[u8]>);

    impl Memory {
        pub(super) fn zeroed(bytes: usize) -> io::Result<Memory> {
            let mut buffer = Vec::new();
            buffer.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
            buffer.resize(bytes, 0);
            Ok(Memory(buffer.into_boxed_slice()))
        }

        pub(super) fn bytes(&self) -> &[u8] {
            &self.0
        }

        pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
}

// `madvise`, `memchr`.
#[cfg(unix)]
mod imp {
    pub(super) fn use_one_heap() {
        // Ignored: then there are several heaps.
        // SAFETY: numbers.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }

    pub(super) fn page_bytes() -> usize {
        // SAFETY: a name that sysconf knows.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // It cannot fail; 64 KiB is the largest page size in use.
        usize::try_from(bytes).unwrap_or(64 << 10)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn advise_huge_pages(buffer: &mut Vec<u8>) {
        let page = page_bytes();
        let start = buffer.as_mut_ptr() as usize;
        let first = start & !(page - 1);
        let end = (start + buffer.capacity()).next_multiple_of(page);
        // The whole allocation, with the allocator's header in front: advice for a part would split the
        // mapping, which then could not be moved when it grows (mremap(2), EFAULT) but would be copied.
        // SAFETY: the pages of an allocation that is mutably borrowed here, and of its neighbours;
        // MADV_HUGEPAGE changes the backing of pages, never their contents.
        let _ =
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }

    #[cfg(target_os = "linux")]
    pub(super) fn prefault_next(buffer: &mut Vec<u8>) {
        const BLOCK_BYTES: usize = 2 << 20;
        /// The most that one read can return.
        const AHEAD_BYTES: usize = 128 << 10;
        let start = buffer.as_mut_ptr() as usize;
        let next = (start + buffer.len()).next_multiple_of(BLOCK_BYTES);
        let is_near = next < start + buffer.len() + AHEAD_BYTES;
        if !is_near || next + BLOCK_BYTES > start + buffer.capacity() {
            return;
        }
        // SAFETY: whole pages inside an allocation that is mutably borrowed here; the call faults them
        // in as a write would, and changes none of their contents.
        let _ = unsafe {
            libc::madvise(next as *mut libc::c_void, BLOCK_BYTES, libc::MADV_POPULATE_WRITE)
        };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn prefault_next(_: &mut Vec<u8>) {
        // Only Linux has this call.
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn advise_huge_pages(_: &mut Vec<u8>) {
        // macOS has no huge pages on request.
    }

    #[inline]
    pub(super) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
        let start = bytes.as_ptr();
        // SAFETY: a live slice and its length.
        let found = unsafe { libc::memchr(start.cast(), libc::c_int::from(byte), bytes.len()) };
        place(start, found)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn find_last(bytes: &[u8], byte: u8) -> Option<usize> {
        let start = bytes.as_ptr();
        // SAFETY: a live slice and its length.
        let found = unsafe { libc::memrchr(start.cast(), libc::c_int::from(byte), bytes.len()) };
        place(start, found)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn find_last(bytes: &[u8], byte: u8) -> Option<usize> {
        bytes.iter().rposition(|other| *other == byte)
    }

    #[inline]
    fn place(start: *const u8, found: *const libc::c_void) -> Option<usize> {
        (!found.is_null()).then(|| found as usize - start as usize)
    }
}

// `memchr` of the C library. There are no hints.
#[cfg(windows)]
mod imp {
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;

    use windows_sys::Win32::System::SystemInformation::GetSystemInfo;

    unsafe extern "C" {
        /// Part of the C library, which std links to.
        fn memchr(bytes: *const c_void, byte: c_int, length: usize) -> *const c_void;
    }

    pub(super) fn use_one_heap() {}

    pub(super) fn page_bytes() -> usize {
        let mut info = MaybeUninit::uninit();
        // SAFETY: it initializes the struct, and cannot fail.
        unsafe { GetSystemInfo(info.as_mut_ptr()) };
        // SAFETY: initialized by the call above.
        unsafe { info.assume_init() }.dwPageSize as usize
    }

    pub(super) fn advise_huge_pages(_: &mut Vec<u8>) {
        // Large pages require a privilege and an allocation of their own.
    }

    pub(super) fn prefault_next(_: &mut Vec<u8>) {
        // No call faults in pages that have not been touched.
    }

    #[inline]
    pub(super) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
        let start = bytes.as_ptr();
        // SAFETY: a live slice and its length.
        let found = unsafe { memchr(start.cast(), c_int::from(byte), bytes.len()) };
        (!found.is_null()).then(|| found as usize - start as usize)
    }

    pub(super) fn find_last(bytes: &[u8], byte: u8) -> Option<usize> {
        bytes.iter().rposition(|other| *other == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_is_respected_and_every_byte_is_zero() {
        for shift in 0..16 {
            let align = 1 << shift;
            let buffer = AlignedBuf::zeroed(align * 3 + 1, align).unwrap();
            assert_eq!(buffer.as_ptr() as usize % align, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            assert_eq!(AlignedBuf::zeroed(0, align).unwrap().as_ptr() as usize % align, 0);
        }
        assert_eq!(AlignedBuf::zeroed(0, 4096).unwrap().len(), 0);
    }

    #[test]
    fn nonsense_is_an_error() {
        for (len, align) in [(1, 0), (1, 3), (usize::MAX, 4096)] {
            assert!(AlignedBuf::zeroed(len, align).is_err(), "{len} at {align}");
        }
        let error = AlignedBuf::zeroed(isize::MAX as usize - 8192, 4096).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn bytes_are_kept_and_not_printed() {
        let mut bytes = UndumpedBytes::zeroed(5000).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes[4999] = 255;
        assert_eq!(bytes[4999], 255);
        assert!(!format!("{bytes:?}").contains("255"));
        assert!(UndumpedBytes::zeroed(0).unwrap().is_empty());
    }
}
