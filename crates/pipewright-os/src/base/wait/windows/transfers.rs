//! The reads and writes of one wait.

use std::io;
use std::mem;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle};
use std::sync::Arc;

use super::super::{Slot, make_room};
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{
    MOST_READ_BYTES, WriteEnd, WriteRequest, WriterThread, map_read_result, map_write_result,
};
use crate::base::wake::Wake;

pub(super) struct Transfers {
    /// One for each slot. Dropped before the event, which the kernel may set until then.
    running: Vec<Option<Running>>,
    /// Set at the end of each transfer without an event of its own; `None`: there are no transfers.
    event: Option<Arc<Wake>>,
    /// The events of the writes that are left to the kernel.
    write_events: Vec<Option<Arc<Wake>>>,
    needs_check: bool,
}

#[derive(Debug)]
pub(in crate::base::wait) enum Running {
    /// The kernel reads.
    Operation(OverlappedIo),
    /// The kernel writes. The pipe end owns the write until it is done.
    Pending(Arc<WriteEnd>),
    /// The writer thread of the end writes.
    OnThread(ThreadWrite),
}

/// A write on the writer thread of that end.
#[derive(Debug)]
pub(in crate::base::wait) struct ThreadWrite(Arc<WriteEnd>);

impl Drop for ThreadWrite {
    fn drop(&mut self) {
        let _ = self.0.writer_thread().map(WriterThread::detach);
    }
}

impl Running {
    pub(in crate::base::wait) fn result(&self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.result(),
            Running::Pending(end) => end.take_result(),
            Running::OnThread(ThreadWrite(end)) => {
                end.writer_thread().and_then(WriterThread::result)
            }
        }
    }

    /// Cancels a read. A write goes on: the next wait for the same bytes finds it.
    pub(in crate::base::wait) fn stop(&mut self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.stop(),
            // The drop detaches a write on a thread.
            Running::Pending(_) | Running::OnThread(_) => self.result(),
        }
    }
}

impl Transfers {
    pub(super) fn new(slots: &[Slot<'_>]) -> io::Result<Transfers> {
        if !slots.iter().any(|slot| matches!(slot, Slot::Read(..) | Slot::Write(..))) {
            let (running, write_events) = (Vec::new(), Vec::new());
            return Ok(Transfers { running, event: None, write_events, needs_check: false });
        }
        let running = slots.iter().map(|_| None).collect();
        let event = Some(Arc::new(Wake::new()?));
        let write_events = slots.iter().map(event_of_write).collect::<io::Result<_>>()?;
        Ok(Transfers { running, event, write_events, needs_check: false })
    }

    /// Returns the event of the write at that index.
    pub(super) fn event_of(&self, place: usize) -> Option<BorrowedHandle<'_>> {
        let event = self.write_events.get(place)?.as_ref()?;
        Some(event.as_handle())
    }

    pub(super) fn event(&self) -> Option<BorrowedHandle<'_>> {
        self.event.as_ref().map(|event| event.as_handle())
    }

    /// Returns true if there is a pipe that no event reports.
    pub(super) fn needs_check(&self) -> bool {
        self.needs_check
    }

    /// Starts transfers that are not running, and completes slots whose transfer is done. Returns
    /// the number of completed slots.
    pub(super) fn advance(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let Some(event) = &self.event else { return 0 };
        // A transfer that finishes from here on sets the event again, or is found below: each start
        // resets it too.
        event.lower();
        let mut done = 0;
        self.needs_check = false;
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            if running.is_some() || !is_transfer(slot) {
                continue;
            }
            match start(slot, event) {
                TransferStart::Running(started) => *running = Some(started),
                TransferStart::Done => done += 1,
                TransferStart::Retry => self.needs_check = true,
                TransferStart::Nothing => {}
            }
        }
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            let Some(result) = running.as_ref().and_then(Running::result) else { continue };
            *running = None;
            match finish(slot, Some(result)) {
                true => done += 1,
                // Nothing was read: it is started again.
                false => event.raise(),
            }
        }
        done
    }

    /// Cancels the reads that are not done. Returns the number of transfers that are done after
    /// all.
    pub(super) fn stop(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut done = 0;
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            if let Some(mut running) = running.take() {
                done += usize::from(finish(slot, running.stop()));
            }
        }
        done
    }
}

/// The outcome of starting a transfer.
pub(in crate::base::wait) enum TransferStart {
    Running(Running),
    /// The slot is done.
    Done,
    /// The transfer cannot be started, and has to be tried again.
    Retry,
    /// There is nothing to read, and a handle reports when there may be.
    Nothing,
}

fn is_transfer(slot: &Slot<'_>) -> bool {
    matches!(slot, Slot::Read(..) | Slot::Write(..))
}

pub(in crate::base::wait) fn start(slot: &mut Slot<'_>, event: &Arc<Wake>) -> TransferStart {
    match slot {
        Slot::Read(pipe, buffer) => {
            if let Err(error) = make_room(buffer) {
                return complete(slot, Err(error));
            }
            if !pipe.is_overlapped() {
                return read_now(slot);
            }
            let spare = buffer.spare_capacity_mut();
            let room = spare.len().min(MOST_READ_BYTES);
            // SAFETY: the slot owns the pipe and the buffer, and is not touched while this runs;
            // the read is stopped, or dropped, before the slot is returned and before the event is
            // closed.
            let operation = unsafe {
                OverlappedIo::read(pipe.as_raw_handle(), event, spare.as_mut_ptr().cast(), room)
            };
            TransferStart::Running(Running::Operation(operation))
        }
        Slot::Write(pipe, bytes, from) => {
            let end = pipe.end();
            let piece = end.piece(bytes.get(*from..).unwrap_or_default());
            if piece.is_empty() {
                return complete(slot, Ok(0));
            }
            if !end.is_overlapped() {
                return write_on_thread_or_now(slot, &end, event);
            }
            match end.start_write(WriteRequest { bytes: Arc::clone(bytes), from: *from }) {
                Ok(()) => TransferStart::Running(Running::Pending(end)),
                Err(error) => complete(slot, Err(error)),
            }
        }
        _ => TransferStart::Done,
    }
}

/// Returns the event of a write that is left to the kernel.
fn event_of_write(slot: &Slot<'_>) -> io::Result<Option<Arc<Wake>>> {
    match slot {
        Slot::Write(pipe, ..) => {
            let end = pipe.end();
            end.is_overlapped().then(|| end.event()).transpose()
        }
        _ => Ok(None),
    }
}

/// Reads from an end that is not overlapped, if data is available.
fn read_now(slot: &mut Slot<'_>) -> TransferStart {
    let Slot::Read(pipe, buffer) = slot else { return TransferStart::Done };
    match pipe.try_read_spare(buffer) {
        // A console wakes the wait itself.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => match pipe.console() {
            Some(_) => TransferStart::Nothing,
            None => TransferStart::Retry,
        },
        result => complete(slot, result),
    }
}

/// Writes to an end that is not overlapped: on its thread if a write may block.
fn write_on_thread_or_now(
    slot: &mut Slot<'_>,
    end: &Arc<WriteEnd>,
    event: &Arc<Wake>,
) -> TransferStart {
    let Slot::Write(pipe, bytes, from) = slot else { return TransferStart::Done };
    if let Some(thread) = end.writer_thread() {
        thread.start(WriteRequest { bytes: Arc::clone(bytes), from: *from }, Arc::clone(event));
        return TransferStart::Running(Running::OnThread(ThreadWrite(Arc::clone(end))));
    }
    let result = pipe.try_write(bytes.get(*from..).unwrap_or_default());
    complete(slot, result)
}

fn complete(slot: &mut Slot<'_>, result: io::Result<usize>) -> TransferStart {
    *slot = match mem::take(slot) {
        Slot::Read(pipe, buffer) => Slot::ReadDone(pipe, buffer, result),
        Slot::Write(pipe, bytes, _) => Slot::WriteDone(pipe, bytes, result),
        other => other,
    };
    TransferStart::Done
}

/// Stores the result of an operation in its slot. `false`: there is none yet, and the transfer goes
/// on.
pub(in crate::base::wait) fn finish(
    slot: &mut Slot<'_>,
    result: Option<io::Result<usize>>,
) -> bool {
    let Some(result) = result else { return false };
    let result = match slot {
        Slot::Read(pipe, buffer) => {
            let result = map_read_result(pipe.as_handle(), result);
            if let Some(Ok(count)) = result {
                // SAFETY: the operation has initialized that many bytes after the length.
                unsafe { buffer.set_len(buffer.len() + count) };
                pipe.note_read(buffer.get(buffer.len() - count..).unwrap_or_default());
            }
            result
        }
        Slot::Write(..) => Some(map_write_result(result)),
        _ => None,
    };
    match result {
        Some(result) => matches!(complete(slot, result), TransferStart::Done),
        None => false,
    }
}
