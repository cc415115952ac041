//! The limits of this process on handles and processes: how many it may have, and what helps where there are too few.

use std::io;

/// Returns the number of handles that this process may have at once; `None` if there is no limit, or it is not known.
///
/// # Platform
/// Unix: `getrlimit(RLIMIT_NOFILE)`. Windows: `None`.
#[must_use]
pub fn of_this_process() -> Option<usize> {
    #[cfg(unix)]
    {
        limit(rustix::process::Resource::Nofile)
    }
    #[cfg(windows)]
    None
}

/// Returns the number of handles that this process can still get, about: those above the lowest free one. `None` if
/// there is no limit, or it is not known.
///
/// # Platform
/// Unix: `getrlimit`, and a pipe, which gets the lowest numbers. Windows: `None`.
#[must_use]
pub fn left() -> Option<usize> {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd as _;
        let limit = of_this_process()?;
        let Ok((read, write)) = super::pipe::new_pipe() else { return Some(0) };
        let used = read.as_raw_fd().max(write.as_raw_fd());
        Some(limit.saturating_sub(usize::try_from(used).unwrap_or(0)))
    }
    #[cfg(windows)]
    None
}

/// Returns true if an error says that this process has all the handles that it may have. No other process can change
/// that.
#[must_use]
pub fn is_reached(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        error.raw_os_error() == Some(libc::EMFILE)
    }
    #[cfg(windows)]
    {
        let _ = error;
        false
    }
}

/// Returns the remedy for an error about too many handles or processes. `None`: it is another error.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<String> {
    #[cfg(unix)]
    {
        let which =
            |resource| limit(resource).map_or(String::new(), |it| format!(", which is {it}"));
        match error.raw_os_error()? {
            libc::EMFILE => {
                Some(format!("raise `ulimit -n`{}", which(rustix::process::Resource::Nofile)))
            }
            libc::EAGAIN => Some(format!(
                "raise `ulimit -u`{}, or the container's limit of processes",
                which(rustix::process::Resource::Nproc)
            )),
            _ => None,
        }
    }
    #[cfg(windows)]
    {
        let _ = error;
        None
    }
}

#[cfg(unix)]
fn limit(resource: rustix::process::Resource) -> Option<usize> {
    let limit = rustix::process::getrlimit(resource).current;
    limit.and_then(|limit| usize::try_from(limit).ok())
}
