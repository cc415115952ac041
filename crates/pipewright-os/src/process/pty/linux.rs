//! Opens a pseudo-terminal by ioctls of its own side.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{OpenError, OpenProblem};

/// Opens the two sides.
pub(super) fn open() -> Result<(OwnedFd, OwnedFd), OpenError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty()).map_err(open_error)?;
    let unlocked: libc::c_int = 0;
    // SAFETY: the call reads the number.
    let result = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    if result < 0 {
        return Err(ioctl_error());
    }
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes numbers.
    let theirs = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if theirs < 0 {
        return Err(ioctl_error());
    }
    // SAFETY: made by the call above, and owned nowhere else.
    Ok((ours, unsafe { OwnedFd::from_raw_fd(theirs) }))
}

/// Makes sure that the side of this process never blocks.
pub(super) fn set_nonblocking(_: BorrowedFd<'_>) -> io::Result<()> {
    // It was opened in that mode.
    Ok(())
}

fn open_error(error: Errno) -> OpenError {
    let problem = match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::NOTDIR => OpenProblem::Missing,
        // From the limit of all terminals or of this devpts.
        Errno::NOSPC => OpenProblem::Exhausted,
        _ => OpenProblem::Other,
    };
    OpenError::new(problem, error.into())
}

/// Returns the error of an ioctl. Something else is called `/dev/ptmx`, an emulator lacks the call, or something else is
/// mounted on `/dev/pts` (`ENODEV`).
fn ioctl_error() -> OpenError {
    let error = io::Error::last_os_error();
    let is_missing = matches!(
        error.raw_os_error(),
        Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::ENODEV)
    );
    OpenError::new(if is_missing { OpenProblem::Missing } else { OpenProblem::Other }, error)
}
