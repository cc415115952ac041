//! Overlapped transfers that outlive a poll, and one thread that tells of them.
//!
//! Nothing of a caller's is left to the kernel. That there is something to read is told by a read of no
//! bytes, which ends when there is and takes nothing; the read itself is made when the task asks
//! again. Bytes to be written are shared, and the end of the pipe has them until they are written or it is
//! given up.

#[cfg(test)]
mod tests;
mod waiter;

use std::future::Future as _;
use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle};
use std::pin::pin;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::task::coop;

use super::super::windows::LOOK_PAUSE;
use super::super::windows::handles::{handle_of, is_unwaitable, look, mark};
use super::super::windows::transfers::{Running, Start, finish, start};
use super::super::{Slot, windows};
use crate::base::event;
use crate::base::handle::copy_of;
use crate::base::overlapped::Operation;
use crate::base::pipe::{PipeReader, WriteEnd, WriteRequest};
use crate::base::wake::{Wake, is_signalled};
use waiter::Awaited;

/// What is under way, each in the place of its slot.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Dropped before the event, which the kernel may raise until then.
    places: Vec<Place>,
    event: Option<Event>,
    /// One cannot be told of, and has to be looked at now and then.
    looks: bool,
    /// The task has had its turn: nothing has been looked at, and it is woken.
    is_put_off: bool,
}

/// Raised when a transfer is done.
#[derive(Debug)]
struct Event {
    wake: Arc<Wake>,
    awaited: Awaited,
}

#[derive(Debug, Default)]
enum Place {
    #[default]
    Nothing,
    /// Looks for something to read.
    Reads { of: usize, look: Look },
    Writes {
        running: Running,
        written: Written,
        /// The end's own event, where the kernel writes.
        awaited: Option<Awaited>,
    },
    /// A process, or a flag.
    Waits {
        of: usize,
        awaited: Awaited,
        /// Keeps the number from passing to another process's handle.
        _event: Option<Arc<dyn event::Event>>,
    },
}

/// A read of no bytes.
#[derive(Debug)]
struct Look {
    /// Dropped before the file.
    read: Option<Operation>,
    /// Our own handle on it: whoever closes the other one does not end what the kernel does.
    file: OwnedHandle,
}

/// What is being written, and where to: it stays until the kernel has let go.
#[derive(Debug)]
struct Written {
    end: Arc<WriteEnd>,
    bytes: Arc<Vec<u8>>,
    from: usize,
}

impl Sources {
    /// Whether nothing is under way that could end a wait.
    pub(super) fn is_empty(&self) -> bool {
        let is_nothing = |place: &Place| matches!(place, Place::Nothing);
        self.places.iter().all(is_nothing) && !self.looks && !self.is_put_off
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
        self.is_put_off = !coop::has_budget_remaining();
        if self.is_put_off {
            // A child that never stops writing must not keep the other tasks from their turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let done = self.poll(cx, slots);
        if done.is_ready() {
            // Ignored: there was some of it.
            let _ = pin!(coop::consume_budget()).poll(cx);
        }
        done
    }

    /// The same without a runtime, where nothing has to be looked at.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.places.resize_with(slots.len(), Place::default);
        loop {
            let done = self.go_on(cx, slots);
            // Also after an error: what has been written must not be lost.
            if !matches!(done, Ok(0)) {
                let stopped = self.stop(slots);
                return Poll::Ready(done.map(|done| done + stopped));
            }
            match &self.event {
                // Done since it was looked at.
                Some(event) if event.wake.is_raised() => {}
                Some(event) if self.places.iter().any(Place::is_shared) => {
                    return match event.awaited.wake(cx.waker()) {
                        Ok(()) => Poll::Pending,
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
                _ => return Poll::Pending,
            }
        }
    }

    /// Starts what is not running, and takes what is done. Says how much that is.
    fn go_on(&mut self, cx: &Context<'_>, slots: &mut [Slot<'_>]) -> io::Result<usize> {
        self.looks = false;
        if let Some(event) = &self.event {
            // Whatever is done from here on raises it, or is found below: to start one lowers it too.
            event.wake.lower();
        }
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.begin(slot, &mut self.event)?);
        }
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.take(cx, slot, &mut self.looks)?);
        }
        Ok(done)
    }

    /// Takes what has been written since. Returns the number of those; the others go on.
    fn stop(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots) {
            let Place::Writes { running, .. } = place else { continue };
            if let Some(result) = running.result() {
                *place = Place::Nothing;
                done += usize::from(finish(slot, Some(result)));
            }
        }
        done
    }
}

impl Place {
    /// True if the shared event tells of it.
    fn is_shared(&self) -> bool {
        matches!(self, Place::Writes { awaited: None, .. } | Place::Reads { .. })
    }

    /// Starts what the slot asks for, if that is not running. `true`: the slot is done.
    fn begin(&mut self, slot: &mut Slot<'_>, event: &mut Option<Event>) -> io::Result<bool> {
        match slot {
            Slot::Read(pipe, _) if pipe.is_overlapped() => {
                let of = number_of(pipe.as_handle());
                if !matches!(self, Place::Reads { of: old, .. } if *old == of) {
                    *self = Place::Reads { of, look: Look::new(pipe)? };
                }
                if let Place::Reads { look, .. } = self {
                    look.begin(&*shared(event)?);
                }
            }
            Slot::Write(pipe, bytes, from) => {
                let written = Written { end: pipe.end(), bytes: Arc::clone(bytes), from: *from };
                if matches!(self, Place::Writes { written: old, .. } if old.is_same(&written)) {
                    if written.end.is_overlapped() {
                        // Somebody may have taken its result.
                        written.end.start_write(WriteRequest {
                            bytes: written.bytes,
                            from: written.from,
                        })?;
                    }
                    return Ok(false);
                }
                *self = Place::Nothing;
                let awaited = match written.end.is_overlapped() {
                    true => {
                        let event = written.end.event()?;
                        Some(Awaited::new(copy_of(event.as_handle().as_raw_handle(), false)?))
                    }
                    false => None,
                };
                match start(slot, &shared(event)?) {
                    Start::Running(running) => *self = Place::Writes { running, written, awaited },
                    Start::Done => return Ok(true),
                    Start::Look => {}
                }
            }
            slot => match handle_of(slot) {
                Some(handle) => {
                    let of = number_of(handle);
                    if !matches!(self, Place::Waits { of: old, .. } if *old == of) {
                        let copy = copy_of(handle.as_raw_handle(), false)?;
                        let event = match slot {
                            Slot::Owned(event) => Some(Arc::clone(event)),
                            _ => None,
                        };
                        *self = Place::Waits { of, awaited: Awaited::new(copy), _event: event };
                    }
                }
                None => {
                    *self = Place::Nothing;
                    return Ok(look(slot));
                }
            },
        }
        Ok(false)
    }

    /// Completes the slot, if it can be; else sees to it that the task is woken when that changes.
    fn take(
        &mut self,
        cx: &Context<'_>,
        slot: &mut Slot<'_>,
        looks: &mut bool,
    ) -> io::Result<bool> {
        match (&mut *self, &mut *slot) {
            (Place::Reads { look, .. }, Slot::Read(..)) => {
                if !look.take() {
                    return Ok(false);
                }
            }
            // What cannot be told of.
            (_, Slot::Read(..)) => {}
            (Place::Nothing, slot) if is_unwaitable(slot) => {
                *looks = true;
                return Ok(false);
            }
            (Place::Writes { running, awaited, .. }, _) => {
                let Some(result) = running.result() else {
                    if let Some(awaited) = awaited {
                        awaited.wake(cx.waker())?;
                    }
                    return Ok(false);
                };
                *self = Place::Nothing;
                return Ok(finish(slot, Some(result)));
            }
            (Place::Waits { awaited, .. }, slot) => {
                if handle_of(slot).is_some_and(is_signalled) {
                    return Ok(mark(slot));
                }
                awaited.wake(cx.waker())?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        let is_done = windows::wait(slice::from_mut(slot), Some(Instant::now()))? > 0;
        // Somebody has written nothing, or another has read it.
        *looks |= !is_done;
        Ok(is_done)
    }
}

impl Look {
    fn new(pipe: &PipeReader) -> io::Result<Look> {
        Ok(Look { read: None, file: copy_of(pipe.as_raw_handle(), false)? })
    }

    fn begin(&mut self, event: &Wake) {
        if self.read.is_none() {
            let (file, nowhere) = (self.file.as_raw_handle(), NonNull::dangling().as_ptr());
            // SAFETY: the file is open and the event is there until this is dropped; of memory it
            // takes none.
            self.read = Some(unsafe { Operation::read(file, event, nowhere, 0) });
        }
    }

    /// Whether there is something to read, or an end, or an error to be told of: the read will say.
    fn take(&mut self) -> bool {
        self.read.take_if(|read| read.result().is_some()).is_some()
    }
}

impl Written {
    fn is_same(&self, other: &Written) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
            && Arc::ptr_eq(&self.bytes, &other.bytes)
            && self.from == other.from
    }
}

/// The event of all transfers, which is made for the first of them.
fn shared(event: &mut Option<Event>) -> io::Result<Arc<Wake>> {
    if let Some(event) = event {
        return Ok(Arc::clone(&event.wake));
    }
    let wake = Arc::new(Wake::new()?);
    let awaited = Awaited::new(copy_of(wake.as_handle().as_raw_handle(), false)?);
    *event = Some(Event { wake: Arc::clone(&wake), awaited });
    Ok(wake)
}

/// Not a handle any more: only to be compared.
fn number_of(handle: BorrowedHandle<'_>) -> usize {
    handle.as_raw_handle().addr()
}
