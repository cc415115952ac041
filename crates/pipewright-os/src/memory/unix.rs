//! `madvise`.

#[cfg(target_os = "linux")]
pub(super) fn expect_filling(buffer: &mut Vec<u8>) {
    const HUGE_BYTES: usize = 2 << 20;
    let spare = buffer.spare_capacity_mut();
    let start = spare.as_mut_ptr() as usize;
    let end = (start + spare.len()) & !(HUGE_BYTES - 1);
    let Some(first) = start.checked_next_multiple_of(HUGE_BYTES) else {
        return;
    };
    if first >= end {
        return;
    }
    // SAFETY: the range lies inside an allocation that is borrowed mutably here, and
    // MADV_HUGEPAGE changes how its pages are backed, never what they contain.
    let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn expect_filling(_: &mut Vec<u8>) {
    // macOS has no huge pages on request.
}
