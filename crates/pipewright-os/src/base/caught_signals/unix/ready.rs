//! A descriptor that is readable when a blocked signal has arrived: a signalfd, or a kqueue.
//!
//! It only reports that there may be one. Another call takes the signal itself.

use std::io;
#[cfg(not(target_os = "linux"))]
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

#[cfg(not(target_os = "linux"))]
use crate::base::signal::Signal;
#[cfg(not(target_os = "linux"))]
use crate::base::wait::poll_readable;

#[derive(Debug)]
pub(super) struct Ready(OwnedFd);

impl Ready {
    #[cfg(target_os = "linux")]
    pub(super) fn new(set: &libc::sigset_t) -> io::Result<Ready> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: a live set, and no existing descriptor to change.
        let made = unsafe { libc::signalfd(-1, set, flags) };
        Ready::owned(made)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new(set: &libc::sigset_t) -> io::Result<Ready> {
        // SAFETY: no arguments. Children do not inherit it (kqueue(2)).
        let ready = Ready::owned(unsafe { libc::kqueue() })?;
        for number in 1..=Signal::LAST {
            // SAFETY: a live set.
            if unsafe { libc::sigismember(set, number) } == 1 {
                ready.watch(number)?;
            }
        }
        Ok(ready)
    }

    fn owned(made: RawFd) -> io::Result<Ready> {
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the caller just now, and owned by nothing else.
        Ok(Ready(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Waits until a signal may have arrived, or until the deadline.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        poll_readable(self.0.as_fd(), until)?;
        self.lower();
        Ok(())
    }

    /// Discards the reports so far.
    #[cfg(target_os = "linux")]
    pub(super) fn lower(&self) {
        // A signalfd only shows the pending signals.
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn lower(&self) {
        let mut events = std::mem::MaybeUninit::<[libc::kevent; 8]>::uninit();
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Ignored: the next call reports the rest again.
        // SAFETY: no changes, room for the stated number of events, and a live time.
        let _ = unsafe {
            libc::kevent(
                self.0.as_raw_fd(),
                std::ptr::null(),
                0,
                events.as_mut_ptr().cast(),
                8,
                &raw const now,
            )
        };
    }

    /// Adds a signal to the reports.
    #[cfg(not(target_os = "linux"))]
    fn watch(&self, number: i32) -> io::Result<()> {
        let change = libc::kevent {
            ident: number as libc::uintptr_t,
            filter: libc::EVFILT_SIGNAL,
            flags: libc::EV_ADD | libc::EV_CLEAR,
            fflags: 0,
            data: 0,
            udata: std::ptr::null_mut(),
        };
        // SAFETY: one live change, and no room for events.
        let made = unsafe {
            libc::kevent(
                self.0.as_raw_fd(),
                &raw const change,
                1,
                std::ptr::null_mut(),
                0,
                std::ptr::null(),
            )
        };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Registers it with the runtime of the task.
    #[cfg(feature = "tokio")]
    pub(super) fn register(self) -> io::Result<tokio::io::unix::AsyncFd<Ready>> {
        crate::base::wait::current_runtime()?;
        // SAFETY: it owns the descriptor, which stays open and the same until the drop.
        let registered = unsafe {
            tokio::io::unix::AsyncFd::register_with_interest(self, tokio::io::Interest::READABLE)
        };
        registered.map_err(io::Error::from)
    }
}

#[cfg(feature = "tokio")]
impl AsRawFd for Ready {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
