//! A descriptor that is readable when a blocked signal has arrived: a signalfd.
//!
//! It only reports that there may be one. Another call takes the signal itself.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

#[derive(Debug)]
pub(super) struct Ready(OwnedFd);

impl Ready {
    pub(super) fn new(set: &libc::sigset_t) -> io::Result<Ready> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: a live set, and no existing descriptor to change.
        let made = unsafe { libc::signalfd(-1, set, flags) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call just now, and owned by nothing else.
        Ok(Ready(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Registers it with the runtime of the task.
    pub(super) fn register(self) -> io::Result<tokio::io::unix::AsyncFd<Ready>> {
        crate::base::wait::current_runtime()?;
        // SAFETY: it owns the descriptor, which stays open and the same until the drop.
        let registered = unsafe {
            tokio::io::unix::AsyncFd::register_with_interest(self, tokio::io::Interest::READABLE)
        };
        registered.map_err(io::Error::from)
    }
}

impl AsRawFd for Ready {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
