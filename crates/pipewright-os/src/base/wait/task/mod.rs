//! The same wait for a task: it blocks no thread.

#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::runtime::{Handle, Id};
use tokio::time::Sleep;

use super::Slot;

/// The registrations with the runtime through which a task waits for its slots.
///
/// A task keeps one for all its waits, and passes the same sources at the same indices. If the next
/// wait is in another runtime, it registers there.
///
/// # Drop
/// Removes the registrations. No operation is left to the kernel, except on Windows a write that is
/// not done, which stays pending as for [`any`](super::any).
#[derive(Debug, Default)]
pub struct Watch {
    sources: imp::Sources,
    timer: Timer,
    /// The runtime that has these registrations.
    runtime: Option<Id>,
}

impl Watch {
    /// Waits as [`any`](super::any) does, for a task. `Pending`: no slot is done and the deadline
    /// has not passed; the task is woken when that may have changed. The slots can be taken out
    /// meanwhile, and passed again with the next call.
    ///
    /// # Platform
    /// Unix: `epoll` or `kqueue` by tokio's `AsyncFd`, on a duplicate of each descriptor, then one
    /// `poll` with a timeout of 0.
    ///
    /// Windows: one thread of this crate waits for the handles of all tasks in the process
    /// (`WaitForMultipleObjects`; beyond 63 handles `RegisterWaitForSingleObject`, or a check every
    /// 5 ms if the system has no wait packets and would use a thread for every 63). An overlapped
    /// read of zero bytes, which takes no data, reports that there is something to read. A write is
    /// overlapped as well, and stays pending from one call to the next, as for [`any`](super::any).
    ///
    /// # Errors
    /// As [`any`](super::any); `Unsupported` outside a tokio runtime.
    ///
    /// # Panics
    /// The runtime was built without `enable_io` or `enable_time`.
    pub fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        if let Err(error) = self.move_to_current_runtime() {
            return Poll::Ready(Err(error));
        }
        loop {
            if let Poll::Ready(result) = self.sources.poll_wait(cx, slots) {
                return Poll::Ready(result);
            }
            if deadline.is_none() && self.sources.is_empty() {
                // This wait could never end.
                return Poll::Ready(Ok(0));
            }
            let until = [deadline, self.sources.next_check()].into_iter().flatten().min();
            ready!(self.timer.poll_until(cx, until));
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl Watch {
    /// Moves to the runtime of the calling task. Another runtime may no longer be driven, and then
    /// would never report its registrations.
    fn move_to_current_runtime(&mut self) -> io::Result<()> {
        let here = Some(current_runtime()?.id());
        if self.runtime != here {
            // Windows: the sources belong to this crate, and a started write stays with them.
            if cfg!(unix) {
                self.sources = imp::Sources::default();
            }
            self.timer = Timer::default();
            self.runtime = here;
        }
        Ok(())
    }
}

/// Succeeds on a thread that drives a tokio runtime, as the thread of a task does.
///
/// # Errors
/// `Unsupported`: this thread drives no runtime.
pub fn check_runtime() -> io::Result<()> {
    current_runtime().map(drop)
}

/// Returns the runtime of the calling task. A registration outside of one would panic.
pub(crate) fn current_runtime() -> io::Result<Handle> {
    Handle::try_current().map_err(|_| {
        let words = "there is no tokio runtime here";
        io::Error::new(io::ErrorKind::Unsupported, words)
    })
}

#[cfg(windows)]
impl Watch {
    /// Waits without a runtime, for writes only: those need no periodic check.
    pub(crate) fn poll_writes(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sources.poll(cx, slots)
    }
}

/// The single timer of a task.
#[derive(Debug, Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        if deadline <= Instant::now() {
            return Poll::Ready(());
        }
        let deadline = tokio::time::Instant::from_std(deadline);
        match &mut self.sleep {
            Some(sleep) => {
                if sleep.deadline() != deadline {
                    sleep.as_mut().reset(deadline);
                }
            }
            none => *none = Some(Box::pin(tokio::time::sleep_until(deadline))),
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

// Registers a duplicate of each source's descriptor with the runtime.
#[cfg(unix)]
mod unix {
    use std::future::Future as _;
    use std::io;
    use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
    use std::pin::pin;
    use std::slice;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Instant;

    use tokio::io::Interest;
    use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
    use tokio::task::coop::consume_budget;

    use super::super::unix::{CHECK_INTERVAL, Polled};
    use super::super::{Slot, unix};
    use crate::base::wake::WaitEvent;

    /// The most that one task waits for at once, so that the registrations need no allocation.
    const MAX_SLOTS: usize = 8;

    /// The registrations, each at the index of its slot.
    #[derive(Debug, Default)]
    pub(super) struct Sources {
        places: [Option<RegisteredSource>; MAX_SLOTS],
        /// A source cannot be registered, and has to be checked periodically.
        needs_check: bool,
    }

    #[derive(Debug)]
    struct RegisteredSource {
        /// The number of the original descriptor.
        number: RawFd,
        /// Readiness belongs to the open file, so a duplicate works too. Closing the original does not
        /// end a registration that the runtime still has.
        copy: AsyncFd<OwnedFd>,
        writes: bool,
        /// Keeps the number from being reused for another process's handle.
        _event: Option<Arc<dyn WaitEvent>>,
    }

    impl Sources {
        /// Returns true if no registration could end a wait.
        pub(super) fn is_empty(&self) -> bool {
            self.places.iter().all(Option::is_none) && !self.needs_check
        }

        /// Returns the time of the next periodic check, if one is needed.
        pub(super) fn next_check(&self) -> Option<Instant> {
            self.needs_check.then(|| Instant::now() + CHECK_INTERVAL)
        }

        /// Waits once. `Pending`: no slot is done, and the task is woken when one may be.
        pub(super) fn poll_wait(
            &mut self,
            cx: &mut Context<'_>,
            slots: &mut [Slot<'_>],
        ) -> Poll<io::Result<usize>> {
            if slots.len() > MAX_SLOTS {
                return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
            }
            self.needs_check = false;
            let mut done = 0;
            for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
                match poll_slot(cx, place, slot, &mut self.needs_check) {
                    Ok(is_done) => done += usize::from(is_done),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if done == 0 {
                return Poll::Pending;
            }
            // A writing end is closed to tell the reader of the end: no duplicate may outlive it.
            for place in &mut self.places {
                place.take_if(|source| source.writes);
            }
            Poll::Ready(Ok(done))
        }
    }

    /// Completes the slot if possible; otherwise arranges that the task is woken when that changes.
    fn poll_slot(
        cx: &mut Context<'_>,
        place: &mut Option<RegisteredSource>,
        slot: &mut Slot<'_>,
        needs_check: &mut bool,
    ) -> io::Result<bool> {
        // The streams of an ended child hold all the data they ever will: registering them would cost
        // more than reading them. Like every other read, this uses the task's budget.
        let is_new_read = place.is_none() && matches!(slot, Slot::Read(..));
        if is_new_read && pin!(consume_budget()).poll(cx).is_ready() && complete_now(slot)? {
            return Ok(true);
        }
        let (fd, events) = match unix::source(slot) {
            Some(Polled::Fd(fd, events)) => (fd, events),
            Some(Polled::Unpollable) => {
                *needs_check = true;
                return complete_now(slot);
            }
            None => {
                // A stream that is left out of one wait keeps its registration.
                place.take_if(|source| source.writes);
                return Ok(false);
            }
        };
        let (number, writes) = (fd.as_raw_fd(), events == libc::POLLOUT);
        if !place.as_ref().is_some_and(|source| source.number == number && source.writes == writes)
        {
            // Dropped before another duplicate is made.
            *place = None;
            let copy = match register(fd.try_clone_to_owned()?, writes) {
                Ok(copy) => copy,
                // A file: epoll does not take it, and it is always ready.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    *needs_check = true;
                    return complete_now(slot);
                }
                Err(error) => return Err(error),
            };
            let event = match slot {
                Slot::Owned(event) => Some(Arc::clone(event)),
                _ => None,
            };
            *place = Some(RegisteredSource { number, copy, writes, _event: event });
        }
        let Some(source) = place else { return Ok(false) };
        while let Poll::Ready(ready) = source.poll_ready(cx) {
            let mut ready = ready?;
            if complete_now(slot)? {
                // There may be more, and the runtime would not report it again.
                ready.retain_ready();
                return Ok(true);
            }
            ready.clear_ready();
        }
        Ok(false)
    }

    /// Returns true if the slot could be completed without waiting.
    fn complete_now(slot: &mut Slot<'_>) -> io::Result<bool> {
        unix::wait(slice::from_mut(slot), Some(Instant::now())).map(|done| done > 0)
    }

    impl RegisteredSource {
        fn poll_ready<'a>(
            &'a self,
            cx: &mut Context<'_>,
        ) -> Poll<io::Result<AsyncFdReadyGuard<'a, OwnedFd>>> {
            if self.writes { self.copy.poll_write_ready(cx) } else { self.copy.poll_read_ready(cx) }
        }
    }

    fn register(copy: OwnedFd, writes: bool) -> io::Result<AsyncFd<OwnedFd>> {
        let interest = if writes { Interest::WRITABLE } else { Interest::READABLE };
        // SAFETY: it owns the descriptor, which stays open and the same until the drop.
        let registered = unsafe { AsyncFd::register_with_interest(copy, interest) };
        registered.map_err(io::Error::from)
    }
}
