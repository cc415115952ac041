//! The count of processors, which every Unix reports in the same way.

pub(super) fn online() -> usize {
    // SAFETY: a name that sysconf knows.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1)
}
