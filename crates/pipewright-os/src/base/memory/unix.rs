//! `madvise`, `memchr`.

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
    let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
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
    let _ =
        unsafe { libc::madvise(next as *mut libc::c_void, BLOCK_BYTES, libc::MADV_POPULATE_WRITE) };
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
