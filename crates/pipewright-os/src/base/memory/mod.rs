//! Large buffers: hints about them, and what stands where in them.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

/// Asks for huge pages behind a large buffer.
///
/// Collecting a gigabyte is bound by page faults, and 2 MiB pages make one of 512. A hint: where
/// it does nothing, nothing is wrong.
///
/// # Platform
/// Linux: `madvise(MADV_HUGEPAGE)` on every page of the buffer; elsewhere nothing.
pub fn expect_filling(buffer: &mut Vec<u8>) {
    imp::expect_filling(buffer);
}

/// Has all threads allocate from one heap. For a program whose other threads allocate next to nothing: each
/// would otherwise have a heap of its own, which is mapped where it begins and unmapped where the program ends.
///
/// # Platform
/// glibc: `mallopt(M_ARENA_MAX)`; elsewhere nothing.
pub fn share_one_heap() {
    imp::share_one_heap();
}

/// The size of a page of memory, in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    imp::page_bytes()
}

/// Makes the memory that the next read will fill real beforehand, where it is not.
///
/// A page that is first touched inside a read is cleared while the kernel holds the pipe's lock,
/// and the writer waits.
///
/// # Platform
/// Linux 5.14 and later: `madvise(MADV_POPULATE_WRITE)`, 2 MiB at a time, never more than that
/// ahead; elsewhere nothing.
pub fn prepare_next(buffer: &mut Vec<u8>) {
    imp::prepare_next(buffer);
}

/// Where a byte stands first.
///
/// std has this only inside; what it offers for bytes looks at them one by one, and what it offers
/// for text takes twice as long.
///
/// # Platform
/// `memchr` of the C library, which is written for the processor at hand.
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

/// Where a byte stands last.
///
/// # Platform
/// Linux: `memrchr`; elsewhere one byte after the other.
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
