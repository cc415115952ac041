//! The same wait for a task: it blocks no thread.

#[cfg(unix)]
mod unix;
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

/// What the slots of one task are waited for through: its registrations with the runtime.
///
/// A task that waits keeps one, and passes it the same places for the same sources, wait after
/// wait. Where the next wait is in another runtime it registers there.
///
/// # Drop
/// Gives the registrations up. Nothing is left to the kernel; Windows: but a write that is not done, which stays
/// begun as for [`any`](super::any).
#[derive(Debug, Default)]
pub struct Watch {
    sources: imp::Sources,
    timer: Timer,
    /// Whose registrations these are.
    runtime: Option<Id>,
}

impl Watch {
    /// As [`any`](super::any), for a task: `Pending` where no slot is done and the deadline has
    /// not passed; the task is woken when that may have changed. The slots can be taken out
    /// meanwhile, and lent again for the next call.
    ///
    /// # Platform
    /// Unix: `epoll` or `kqueue` by tokio's `AsyncFd`, on a copy of each descriptor, then one
    /// `poll` that does not wait.
    ///
    /// Windows: one thread of ours waits for whatever all tasks of the process wait for
    /// (`WaitForMultipleObjects`; for handles beyond 63 `RegisterWaitForSingleObject`, or a look every
    /// 5 ms where the system has no wait packets and would take a thread for every 63). That there is
    /// something to read is told by an overlapped read of no bytes, which takes nothing. A write is
    /// overlapped as well, and stays begun from one call to the next, as for [`any`](super::any).
    ///
    /// # Errors
    /// As [`any`](super::any); `Unsupported` outside of a tokio runtime.
    ///
    /// # Panics
    /// The runtime was built without `enable_io` or `enable_time`.
    pub fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        if let Err(error) = self.settle() {
            return Poll::Ready(Err(error));
        }
        loop {
            if let Poll::Ready(result) = self.sources.poll_wait(cx, slots) {
                return Poll::Ready(result);
            }
            if deadline.is_none() && self.sources.is_empty() {
                // Nothing could ever end this wait.
                return Poll::Ready(Ok(0));
            }
            let until = [deadline, self.sources.look_at()].into_iter().flatten().min();
            ready!(self.timer.poll_until(cx, until));
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Poll::Ready(Ok(0));
            }
        }
    }
}

impl Watch {
    /// What another runtime was to tell of would never be told, if nobody drives that one any more.
    fn settle(&mut self) -> io::Result<()> {
        let here = Some(current_runtime()?.id());
        if self.runtime != here {
            // Windows: they are ours, and a write that has begun stays with them.
            if cfg!(unix) {
                self.sources = imp::Sources::default();
            }
            self.timer = Timer::default();
            self.runtime = here;
        }
        Ok(())
    }
}

/// Succeeds on a thread that drives a tokio runtime, as that of a task does.
///
/// # Errors
/// `Unsupported`: this thread drives none.
pub fn check_runtime() -> io::Result<()> {
    current_runtime().map(drop)
}

/// That of the calling task. Elsewhere a registration would panic.
pub(crate) fn current_runtime() -> io::Result<Handle> {
    Handle::try_current().map_err(|_| {
        let words = "there is no tokio runtime here";
        io::Error::new(io::ErrorKind::Unsupported, words)
    })
}

#[cfg(windows)]
impl Watch {
    /// The same for whoever has no runtime: of writes, which nobody has to look at.
    pub(crate) fn poll_writes(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sources.poll(cx, slots)
    }
}

/// The one timer of a task.
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
