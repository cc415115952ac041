//! A copy of each source's descriptor, registered with the runtime.

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

use super::super::unix::{LOOK_PAUSE, Polled};
use super::super::{Slot, unix};
use crate::base::event::Event;

/// The most that one task waits for at once: what is registered takes no memory of its own.
const PLACES: usize = 8;

/// The registrations, each in the place of its slot.
#[derive(Debug, Default)]
pub(super) struct Sources {
    places: [Option<Source>; PLACES],
    /// One cannot be registered, and has to be looked at now and then.
    looks: bool,
}

/// A source that is registered.
#[derive(Debug)]
struct Source {
    /// The number that it is a copy of.
    of: RawFd,
    /// Readiness is told of an open file, so a copy is as good; and whoever closes the other one
    /// does not end a registration that the runtime still has.
    copy: AsyncFd<OwnedFd>,
    writes: bool,
    /// Keeps the number from passing to another process's handle.
    _event: Option<Arc<dyn Event>>,
}

impl Sources {
    /// Whether nothing is registered that could end a wait.
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none) && !self.looks
    }

    /// When to look again, whatever happens.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.looks.then(|| Instant::now() + LOOK_PAUSE)
    }

    /// `Pending`: no slot is done, and the task is woken when one may be.
    pub(super) fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        if slots.len() > PLACES {
            return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
        }
        self.looks = false;
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            match poll_slot(cx, place, slot, &mut self.looks) {
                Ok(is_done) => done += usize::from(is_done),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if done == 0 {
            return Poll::Pending;
        }
        // What is written to is closed to tell the reader of the end: no copy may outlive it.
        for place in &mut self.places {
            place.take_if(|source| source.writes);
        }
        Poll::Ready(Ok(done))
    }
}

/// Completes the slot, if it can be; else sees to it that the task is woken when that changes.
fn poll_slot(
    cx: &mut Context<'_>,
    place: &mut Option<Source>,
    slot: &mut Slot<'_>,
    looks: &mut bool,
) -> io::Result<bool> {
    // The streams of a child that has ended hold all that they ever will: to register them would cost more than
    // to read them. As every other read, it counts among what a task may do before others have their turn.
    let reads_anew = place.is_none() && matches!(slot, Slot::Read(..));
    if reads_anew && pin!(consume_budget()).poll(cx).is_ready() && complete_now(slot)? {
        return Ok(true);
    }
    let (fd, events) = match unix::source(slot) {
        Some(Polled::Fd(fd, events)) => (fd, events),
        Some(Polled::Never) => {
            *looks = true;
            return complete_now(slot);
        }
        None => {
            // A stream that is left alone for a moment keeps its registration.
            place.take_if(|source| source.writes);
            return Ok(false);
        }
    };
    let (of, writes) = (fd.as_raw_fd(), events == libc::POLLOUT);
    if !place.as_ref().is_some_and(|source| source.of == of && source.writes == writes) {
        // Given up before another copy is made.
        *place = None;
        let copy = register(fd.try_clone_to_owned()?, writes)?;
        let event = match slot {
            Slot::Owned(event) => Some(Arc::clone(event)),
            _ => None,
        };
        *place = Some(Source { of, copy, writes, _event: event });
    }
    let Some(source) = place else { return Ok(false) };
    while let Poll::Ready(ready) = source.poll_ready(cx) {
        let mut ready = ready?;
        if complete_now(slot)? {
            // There may be more: nobody would tell us again.
            ready.retain_ready();
            return Ok(true);
        }
        ready.clear_ready();
    }
    Ok(false)
}

/// Whether that could be done without any waiting.
fn complete_now(slot: &mut Slot<'_>) -> io::Result<bool> {
    unix::wait(slice::from_mut(slot), Some(Instant::now())).map(|done| done > 0)
}

impl Source {
    fn poll_ready<'a>(
        &'a self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, OwnedFd>>> {
        if self.writes { self.copy.poll_write_ready(cx) } else { self.copy.poll_read_ready(cx) }
    }
}

fn register(copy: OwnedFd, writes: bool) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = if writes { Interest::WRITABLE } else { Interest::READABLE };
    // SAFETY: it owns the descriptor, which stays what it is until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(copy, interest) };
    registered.map_err(io::Error::from)
}
