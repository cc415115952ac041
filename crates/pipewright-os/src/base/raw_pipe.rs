//! The descriptors of a new pipe.

use std::io;
use std::os::fd::OwnedFd;

/// Makes a pipe whose ends children do not inherit.
#[cfg(target_os = "linux")]
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Makes a pipe. There is no `pipe2`: a child that other code forks at this moment could inherit
/// the ends. Our children cannot (`POSIX_SPAWN_CLOEXEC_DEFAULT`).
#[cfg(not(target_os = "linux"))]
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe()?;
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((read, write))
}

/// Sets the minimum number of bytes that a pipe can hold.
#[cfg(target_os = "linux")]
pub(crate) fn set_capacity(pipe: &OwnedFd, bytes: usize) -> io::Result<()> {
    Ok(rustix::pipe::fcntl_setpipe_size(pipe, bytes).map(drop)?)
}

/// Refuses a capacity beyond the size to which macOS grows a pipe by itself.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_capacity(_: &OwnedFd, bytes: usize) -> io::Result<()> {
    const MOST_BYTES: usize = 64 << 10;
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let words = "a pipe cannot be larger than 64 KiB on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}
