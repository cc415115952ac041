//! `madvise`, `memchr`.

pub(super) fn share_one_heap() {
    // Ignored: then there are several.
    // SAFETY: numbers.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: a number that sysconf knows.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // It has no error; 64 KiB is the largest that there is.
    usize::try_from(bytes).unwrap_or(64 << 10)
}

#[cfg(target_os = "linux")]
pub(super) fn expect_filling(buffer: &mut Vec<u8>) {
    let page = page_bytes();
    let start = buffer.as_mut_ptr() as usize;
    let first = start & !(page - 1);
    let end = (start + buffer.capacity()).next_multiple_of(page);
    // The whole of it, and the allocator's header in front: advice for a part would split the
    // mapping, which then cannot be moved when it grows (mremap(2), EFAULT) and is copied instead.
    // SAFETY: the pages of an allocation that is borrowed mutably here, and of its neighbours;
    // MADV_HUGEPAGE changes how pages are backed, never what they contain.
    let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
}

#[cfg(target_os = "linux")]
pub(super) fn prepare_next(buffer: &mut Vec<u8>) {
    const BLOCK_BYTES: usize = 2 << 20;
    /// As far as one read can come.
    const AHEAD_BYTES: usize = 128 << 10;
    let start = buffer.as_mut_ptr() as usize;
    let next = (start + buffer.len()).next_multiple_of(BLOCK_BYTES);
    let is_near = next < start + buffer.len() + AHEAD_BYTES;
    if !is_near || next + BLOCK_BYTES > start + buffer.capacity() {
        return;
    }
    // SAFETY: whole pages inside an allocation that is borrowed mutably here; the call makes them
    // real as a write would, and changes nothing that is in them.
    let _ =
        unsafe { libc::madvise(next as *mut libc::c_void, BLOCK_BYTES, libc::MADV_POPULATE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn prepare_next(_: &mut Vec<u8>) {
    // Only Linux has the call.
}

#[cfg(not(target_os = "linux"))]
pub(super) fn expect_filling(_: &mut Vec<u8>) {
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
