//! A kqueue that becomes readable when one process ends: the macOS counterpart of a pidfd.
//!
//! It is bound to the process, not to its number: the kernel looks the number up once, when the process is
//! registered. But it cannot send a signal, and it knows only that it has fired.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::base::generation::Generation;
use crate::process::libproc::{ProcessInfo, is_taken};
use crate::process::status::ExitStatus;

/// A handle that polls readable from the end of the process on. In a fork of this process it counts as
/// fired.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    /// The descriptor. A fork does not inherit it (kqueue(2)): in the fork its number belongs to another
    /// file.
    queue: ManuallyDrop<OwnedFd>,
    created_in: Generation,
}

/// The identifier of the user event that replaces an exit event which can no longer arrive. Any number that
/// no process has will do.
const USER_EVENT: libc::uintptr_t = 0;

impl ExitWatch {
    /// Watches the process that has the number now. If it has ended, reaped or not, the watch has fired.
    pub(crate) fn of(pid: u32) -> io::Result<ExitWatch> {
        let watch = ExitWatch::unregistered()?;
        match watch.register(pid) {
            Ok(()) => watch.catch_missed_exit(pid)?,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => watch.trigger()?,
            Err(error) => return Err(error),
        }
        Ok(watch)
    }

    /// Creates the watch of a process that is known to have ended.
    pub(crate) fn fired() -> io::Result<ExitWatch> {
        let watch = ExitWatch::unregistered()?;
        watch.trigger()?;
        Ok(watch)
    }

    fn unregistered() -> io::Result<ExitWatch> {
        // A child does not inherit it (kqueue(2)).
        // SAFETY: no argument.
        let queue = unsafe { libc::kqueue() };
        if queue < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        let queue = unsafe { OwnedFd::from_raw_fd(queue) };
        Ok(ExitWatch { queue: ManuallyDrop::new(queue), created_in: Generation::current() })
    }

    fn register(&self, pid: u32) -> io::Result<()> {
        let event = |notes| change(pid as libc::uintptr_t, libc::EVFILT_PROC, libc::EV_ADD, notes);
        match self.apply(&event(libc::NOTE_EXIT | libc::NOTE_EXITSTATUS)) {
            // Only the parent and processes that may signal it get the status; every process gets its end.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                self.apply(&event(libc::NOTE_EXIT))
            }
            done => done,
        }
    }

    /// Makes sure that the exit of a process which was ending when it was registered is not missed: an exit
    /// event that fired before the registration does not fire again (oven-sh/bun#35414).
    fn catch_missed_exit(&self, pid: u32) -> io::Result<()> {
        const PAUSE: Duration = Duration::from_micros(50);
        const PAUSES: u32 = 200;
        for _ in 0..PAUSES {
            match ProcessInfo::of(pid) {
                _ if self.has_fired() => return Ok(()),
                // Its exit is still to come, and the kqueue is registered for it.
                Some(state) if !state.is_ending() => return Ok(()),
                Some(state) if !state.has_ended() => thread::park_timeout(PAUSE),
                // A sandbox refuses the lookup.
                None if is_taken(pid) => return Ok(()),
                Some(_) | None => return self.trigger(),
            }
        }
        // It has been ending for so long that its exit event, which comes near the end of an exit, cannot
        // have fired before the registration.
        Ok(())
    }

    fn trigger(&self) -> io::Result<()> {
        self.apply(&change(USER_EVENT, libc::EVFILT_USER, libc::EV_ADD, 0))?;
        self.apply(&change(USER_EVENT, libc::EVFILT_USER, 0, libc::NOTE_TRIGGER))
    }

    /// Returns true if the process has ended, or is so close to its end that a blocking wait for it is
    /// short.
    pub(crate) fn has_fired(&self) -> bool {
        // An error of poll says nothing about the process.
        matches!(self.poll(Some(Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(true))
    }

    /// Blocks until the watch has fired.
    pub(crate) fn wait(&self) -> io::Result<()> {
        loop {
            match self.poll(None) {
                Ok(true) => return Ok(()),
                Ok(false) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the exit status of the process, if the kernel reported it. Works once: afterwards the kqueue
    /// stays readable but no longer has the status.
    pub(crate) fn take_status(&self) -> Option<ExitStatus> {
        if !self.created_in.is_current() {
            return None;
        }
        let mut event = change(0, 0, 0, 0);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: no change, room for one event, and a live time.
        let count = unsafe {
            libc::kevent(self.queue.as_raw_fd(), ptr::null(), 0, &raw mut event, 1, &raw const now)
        };
        // Ignored: there is room for one more event, because one has just been taken out.
        let _ = self.trigger();
        let (filter, notes, status) = (event.filter, event.fflags, event.data);
        let has_status = filter == libc::EVFILT_PROC && notes & libc::NOTE_EXITSTATUS != 0;
        // A wait status has 16 bits.
        (count == 1 && has_status).then(|| ExitStatus::from_raw((status & 0xffff) as i32))
    }

    fn apply(&self, change: &libc::kevent) -> io::Result<()> {
        loop {
            // SAFETY: one change, no room for events, and no time: the call does not wait.
            let result = unsafe {
                let queue = self.queue.as_raw_fd();
                libc::kevent(queue, change, 1, ptr::null_mut(), 0, ptr::null())
            };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn poll(&self, limit: Option<Timespec>) -> rustix::io::Result<bool> {
        if !self.created_in.is_current() {
            return Ok(true);
        }
        let mut polled = [PollFd::new(&*self.queue, PollFlags::IN)];
        rustix::event::poll(&mut polled, limit.as_ref()).map(|count| count > 0)
    }
}

fn change(ident: libc::uintptr_t, filter: i16, flags: u16, notes: u32) -> libc::kevent {
    libc::kevent { ident, filter, flags, fflags: notes, data: 0, udata: ptr::null_mut() }
}

impl Drop for ExitWatch {
    fn drop(&mut self) {
        if self.created_in.is_current() {
            // SAFETY: the last use of the descriptor.
            unsafe { ManuallyDrop::drop(&mut self.queue) };
        }
    }
}

impl AsFd for ExitWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
