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
