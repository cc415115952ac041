//! Opens a pseudo-terminal by the name of its other side. Never run.

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;

use super::{OpenError, OpenProblem};

/// The size of the name that `TIOCPTYGNAME` writes (sys/ttycom.h).
const NAME_BYTES: usize = 128;

/// Opens the two sides.
pub(super) fn open() -> Result<(OwnedFd, OwnedFd), OpenError> {
    // SAFETY: takes a number.
    let ours = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
    if ours < 0 {
        return Err(open_error(io::Error::last_os_error()));
    }
    // SAFETY: made by the call above, and owned nowhere else.
    let ours = unsafe { OwnedFd::from_raw_fd(ours) };
    // There is no flag for it: a child that other code forks in between could inherit it.
    rustix::io::fcntl_setfd(&ours, FdFlags::CLOEXEC).map_err(|error| open_error(error.into()))?;
    // SAFETY: an open file.
    if unsafe { libc::grantpt(ours.as_raw_fd()) } < 0 {
        return Err(open_error(io::Error::last_os_error()));
    }
    // SAFETY: as above.
    if unsafe { libc::unlockpt(ours.as_raw_fd()) } < 0 {
        return Err(open_error(io::Error::last_os_error()));
    }
    let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
    // `ptsname` returns a buffer that threads share.
    // SAFETY: the call writes a name of at most that many bytes, ended by NUL.
    let result = unsafe {
        libc::ioctl(ours.as_raw_fd(), libc::TIOCPTYGNAME as libc::c_ulong, name.as_mut_ptr())
    };
    if result < 0 {
        return Err(open_error(io::Error::last_os_error()));
    }
    // SAFETY: written by the call above.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty());
    Ok((ours, theirs.map_err(|error| open_error(error.into()))?))
}

/// Makes sure that the side of this process never blocks.
pub(super) fn set_nonblocking(ours: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(ours)?;
    Ok(rustix::fs::fcntl_setfl(ours, flags | OFlags::NONBLOCK)?)
}

fn open_error(error: io::Error) -> OpenError {
    let problem = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenProblem::Missing,
        Some(libc::EAGAIN | libc::ENOSPC) => OpenProblem::Exhausted,
        _ => OpenProblem::Other,
    };
    OpenError::new(problem, error)
}
