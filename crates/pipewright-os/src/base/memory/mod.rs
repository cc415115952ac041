//! Hints about large buffers, and searches in them.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

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
