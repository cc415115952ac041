//! Overlapped transfers that outlive a poll, and one thread that reports their ends.
//!
//! No memory of the caller is left to the kernel. A read of zero bytes, which takes no data,
//! finishes when there is something to read; the real read follows when the task polls again. The
//! bytes of a write are shared, and the pipe end owns them until they are written or the write is
//! cancelled.

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

use super::super::windows::CHECK_INTERVAL;
use super::super::windows::handles::{complete_event, handle_of, is_unwaitable};
use super::super::windows::transfers::{Running, TransferStart, finish, start};
use super::super::{Slot, windows};
use crate::base::handle::copy_of;
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{PipeReader, WriteEnd, WriteRequest};
use crate::base::wake;
use crate::base::wake::{Wake, is_signalled};
use waiter::HandleWait;

/// The operations in progress, each at the index of its slot.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Dropped before the event, which the kernel may set until then.
    places: Vec<SlotState>,
    event: Option<SharedEvent>,
    /// A source reports no event, and has to be checked periodically.
    needs_check: bool,
    /// The task's budget is used up: nothing was checked, and the task is woken again.
    is_deferred: bool,
}

/// The event that is set when a transfer is done.
#[derive(Debug)]
struct SharedEvent {
    wake: Arc<Wake>,
    handle_wait: HandleWait,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Idle,
    /// Waits for data to read.
    Read { number: usize, probe: ZeroByteRead },
    Write {
        running: Running,
        target: WriteTarget,
        /// The event of the pipe end, if the kernel writes.
        handle_wait: Option<HandleWait>,
    },
    /// A process, or a flag.
    Wait {
        number: usize,
        handle_wait: HandleWait,
        /// Keeps the number from being reused for another process's handle.
        _event: Option<Arc<dyn event::WaitEvent>>,
    },
}

#[derive(Debug)]
struct ZeroByteRead {
    /// Dropped before the file.
    read: Option<OverlappedIo>,
    /// A duplicate of the handle: closing the original does not end the read.
    file: OwnedHandle,
}

/// The bytes of a write and their target, kept until the kernel has released them.
#[derive(Debug)]
struct WriteTarget {
    end: Arc<WriteEnd>,
    bytes: Arc<Vec<u8>>,
    from: usize,
}

impl Sources {
    /// Returns true if no operation in progress could end a wait.
    pub(super) fn is_empty(&self) -> bool {
        let is_nothing = |place: &SlotState| matches!(place, SlotState::Idle);
        self.places.iter().all(is_nothing) && !self.needs_check && !self.is_deferred
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
        self.is_deferred = !coop::has_budget_remaining();
        if self.is_deferred {
            // A child that never stops writing must not keep other tasks from their turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let done = self.poll(cx, slots);
        if done.is_ready() {
            // Ignored: some budget remained.
            let _ = pin!(coop::consume_budget()).poll(cx);
        }
        done
    }

    /// Waits once without a runtime, for sources that need no periodic check.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.places.resize_with(slots.len(), SlotState::default);
        loop {
            let done = self.advance(cx, slots);
            // Also after an error: the result of a finished write must not be lost.
            if !matches!(done, Ok(0)) {
                let stopped = self.stop(slots);
                return Poll::Ready(done.map(|done| done + stopped));
            }
            match &self.event {
                // Set since the last check.
                Some(event) if event.wake.is_raised() => {}
                Some(event) if self.places.iter().any(SlotState::is_shared) => {
                    return match event.handle_wait.wake(cx.waker()) {
                        Ok(()) => Poll::Pending,
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
                _ => return Poll::Pending,
            }
        }
    }

    /// Starts operations that are not running, and completes slots whose operation is done. Returns
    /// the number of completed slots.
    fn advance(&mut self, cx: &Context<'_>, slots: &mut [Slot<'_>]) -> io::Result<usize> {
        self.needs_check = false;
        if let Some(event) = &self.event {
            // An operation that finishes from here on sets the event again, or is found below: each
            // start resets it too.
            event.wake.lower();
        }
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.start(slot, &mut self.event)?);
        }
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.complete(cx, slot, &mut self.needs_check)?);
        }
        Ok(done)
    }

    /// Completes the slots of writes that are done by now, and returns their number. The others go
    /// on.
    fn stop(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots) {
            let SlotState::Write { running, .. } = place else { continue };
            if let Some(result) = running.result() {
                *place = SlotState::Idle;
                done += usize::from(finish(slot, Some(result)));
            }
        }
        done
    }
}

impl SlotState {
    /// Returns true if the shared event reports its end.
    fn is_shared(&self) -> bool {
        matches!(self, SlotState::Write { handle_wait: None, .. } | SlotState::Read { .. })
    }

    /// Starts the operation that the slot requests, if it is not running. `true`: the slot is done.
    fn start(&mut self, slot: &mut Slot<'_>, event: &mut Option<SharedEvent>) -> io::Result<bool> {
        match slot {
            Slot::Read(pipe, _) if pipe.is_overlapped() => {
                let number = handle_number(pipe.as_handle());
                if !matches!(self, SlotState::Read { number: old, .. } if *old == number) {
                    *self = SlotState::Read { number, probe: ZeroByteRead::new(pipe)? };
                }
                if let SlotState::Read { probe, .. } = self {
                    probe.start(&*shared(event)?);
                }
            }
            Slot::Write(pipe, bytes, from) => {
                let target = WriteTarget { end: pipe.end(), bytes: Arc::clone(bytes), from: *from };
                if matches!(self, SlotState::Write { target: old, .. } if old.is_same(&target)) {
                    if target.end.is_overlapped() {
                        // Another call may have taken its result.
                        target
                            .end
                            .start_write(WriteRequest { bytes: target.bytes, from: target.from })?;
                    }
                    return Ok(false);
                }
                *self = SlotState::Idle;
                let handle_wait = match target.end.is_overlapped() {
                    true => {
                        let event = target.end.event()?;
                        Some(HandleWait::new(copy_of(event.as_handle().as_raw_handle(), false)?))
                    }
                    false => None,
                };
                match start(slot, &shared(event)?) {
                    TransferStart::Running(running) => {
                        *self = SlotState::Write { running, target, handle_wait }
                    }
                    TransferStart::Done => return Ok(true),
                    TransferStart::Retry | TransferStart::Nothing => {}
                }
            }
            slot => match handle_of(slot) {
                Some(handle) => {
                    let number = handle_number(handle);
                    if !matches!(self, SlotState::Wait { number: old, .. } if *old == number) {
                        let copy = copy_of(handle.as_raw_handle(), false)?;
                        let event = match slot {
                            Slot::Owned(event) => Some(Arc::clone(event)),
                            _ => None,
                        };
                        *self = SlotState::Wait {
                            number,
                            handle_wait: HandleWait::new(copy),
                            _event: event,
                        };
                    }
                }
                None => {
                    *self = SlotState::Idle;
                    return Ok(slot.complete_if_happened());
                }
            },
        }
        Ok(false)
    }

    /// Completes the slot if possible; otherwise arranges that the task is woken when that changes.
    fn complete(
        &mut self,
        cx: &Context<'_>,
        slot: &mut Slot<'_>,
        needs_check: &mut bool,
    ) -> io::Result<bool> {
        match (&mut *self, &mut *slot) {
            (SlotState::Read { probe, .. }, Slot::Read(..)) => {
                if !probe.take_if_done() {
                    return Ok(false);
                }
            }
            // A pipe that no event reports.
            (_, Slot::Read(..)) => {}
            (SlotState::Idle, slot) if is_unwaitable(slot) => {
                *needs_check = true;
                return Ok(false);
            }
            (SlotState::Write { running, handle_wait, .. }, _) => {
                let Some(result) = running.result() else {
                    if let Some(handle_wait) = handle_wait {
                        handle_wait.wake(cx.waker())?;
                    }
                    return Ok(false);
                };
                *self = SlotState::Idle;
                return Ok(finish(slot, Some(result)));
            }
            (SlotState::Wait { handle_wait, .. }, slot) => {
                if handle_of(slot).is_some_and(is_signalled) {
                    return Ok(complete_event(slot));
                }
                handle_wait.wake(cx.waker())?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        let is_done = windows::wait(slice::from_mut(slot), Some(Instant::now()))? > 0;
        // The other end has written zero bytes, or another reader has taken the data.
        *needs_check |= !is_done;
        Ok(is_done)
    }
}

impl ZeroByteRead {
    fn new(pipe: &PipeReader) -> io::Result<ZeroByteRead> {
        Ok(ZeroByteRead { read: None, file: copy_of(pipe.as_raw_handle(), false)? })
    }

    fn start(&mut self, event: &Wake) {
        if self.read.is_none() {
            let (file, nowhere) = (self.file.as_raw_handle(), NonNull::dangling().as_ptr());
            // SAFETY: the file and the event stay open until this is dropped; the read uses no
            // memory.
            self.read = Some(unsafe { OverlappedIo::read(file, event, nowhere, 0) });
        }
    }

    /// Returns true if there is data, an end or an error, which the real read will return.
    fn take_if_done(&mut self) -> bool {
        self.read.take_if(|read| read.result().is_some()).is_some()
    }
}

impl WriteTarget {
    fn is_same(&self, other: &WriteTarget) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
            && Arc::ptr_eq(&self.bytes, &other.bytes)
            && self.from == other.from
    }
}

/// Returns the common event of the transfers, which the first of them makes.
fn shared(event: &mut Option<SharedEvent>) -> io::Result<Arc<Wake>> {
    if let Some(event) = event {
        return Ok(Arc::clone(&event.wake));
    }
    let wake = Arc::new(Wake::new()?);
    let handle_wait = HandleWait::new(copy_of(wake.as_handle().as_raw_handle(), false)?);
    *event = Some(SharedEvent { wake: Arc::clone(&wake), handle_wait });
    Ok(wake)
}

/// Returns the number of a handle, for comparisons only: the handle may be closed.
fn handle_number(handle: BorrowedHandle<'_>) -> usize {
    handle.as_raw_handle().addr()
}
