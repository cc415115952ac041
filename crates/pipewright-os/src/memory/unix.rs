//! `madvise`.

#[cfg(target_os = "linux")]
pub(super) fn expect_filling(buffer: &mut Vec<u8>) {
    let page = rustix::param::page_size();
    let start = buffer.as_mut_ptr() as usize;
    let first = start & !(page - 1);
    let end = (start + buffer.capacity()).next_multiple_of(page);
    // The whole of it, and the allocator's header in front: advice for a part would split the
    // mapping, which then cannot be moved when it grows (mremap(2), EFAULT) and is copied instead.
    // SAFETY: the pages of an allocation that is borrowed mutably here, and of its neighbours;
    // MADV_HUGEPAGE changes how pages are backed, never what they contain.
    let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn expect_filling(_: &mut Vec<u8>) {
    // macOS has no huge pages on request.
}
