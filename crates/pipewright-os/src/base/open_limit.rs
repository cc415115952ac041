//! The number of handles that this process may have.

/// Returns the number of handles that this process may have at once; `None` if there is no limit, or it is not known.
///
/// # Platform
/// Unix: `getrlimit(RLIMIT_NOFILE)`. Windows: `None`.
#[must_use]
pub fn of_this_process() -> Option<usize> {
    #[cfg(unix)]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current.and_then(|limit| usize::try_from(limit).ok())
    }
    #[cfg(windows)]
    None
}
