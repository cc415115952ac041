//! An eventfd on Linux, a pipe elsewhere: both are readable while the flag is raised.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::event::EventSource;

#[derive(Debug)]
pub(crate) struct Wake {
    raised: AtomicBool,
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Wake {
    #[cfg(target_os = "linux")]
    pub(super) fn new() -> io::Result<Wake> {
        use rustix::event::EventfdFlags;
        let read = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake { raised: AtomicBool::new(false), read })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new() -> io::Result<Wake> {
        let (read, write) = crate::base::raw_pipe::pipe()?;
        for end in [&read, &write] {
            rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Wake { raised: AtomicBool::new(false), read, write })
    }

    pub(super) fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Ignored: the only possible error is EAGAIN, and then it is readable already.
            let _ = rustix::io::write(self.write_end(), &1_u64.to_ne_bytes());
        }
    }

    pub(super) fn lower(&self) {
        let mut taken = [0_u8; 8];
        // Unconditional, because a raise may be between its store and its write. Ignored: EAGAIN
        // means that there was nothing to read.
        let _ = rustix::io::read(&self.read, &mut taken);
        // Last: the caller checks its state after this, so it sees any raise from before. If this
        // came first, a raise could come in between and its byte would be read away: the flag would
        // stay raised with no waiter woken.
        self.raised.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    #[cfg(target_os = "linux")]
    fn write_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    #[cfg(not(target_os = "linux"))]
    fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}

pub(super) fn source(wake: &super::Wake) -> EventSource<'_> {
    EventSource::Readable(wake.0.read.as_fd())
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}
