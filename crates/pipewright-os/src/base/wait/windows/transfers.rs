//! The reads and writes of one wait.

use std::io;
use std::mem;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle};
use std::sync::Arc;

use super::super::{FIRST_READ_BYTES, Slot};
use crate::base::overlapped::Operation;
use crate::base::pipe::{
    MOST_READ_BYTES, WriteEnd, WriteRequest, WriterThread, map_read_result, map_write_result,
};
use crate::base::wake::Wake;

pub(super) struct Transfers {
    /// One for each slot. Dropped before the event, which the kernel may raise until then.
    running: Vec<Option<Running>>,
    /// Raised when any of them is done that has no event of its own; `None`: there are none.
    event: Option<Arc<Wake>>,
    /// Those of the writes that are left to the kernel.
    of_writes: Vec<Option<Arc<Wake>>>,
    looking: bool,
}

#[derive(Debug)]
pub(in crate::base::wait) enum Running {
    /// The kernel reads.
    Operation(Operation),
    /// The kernel writes. The end has it, and keeps it until it is done.
    Begun(Arc<WriteEnd>),
    /// A thread of the end's own does it.
    Relayed(Relayed),
}

/// What the thread of that end is writing.
#[derive(Debug)]
pub(in crate::base::wait) struct Relayed(Arc<WriteEnd>);

impl Drop for Relayed {
    fn drop(&mut self) {
        let _ = self.0.writer_thread().map(WriterThread::detach);
    }
}

impl Running {
    pub(in crate::base::wait) fn result(&self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.result(),
            Running::Begun(end) => end.take_result(),
            Running::Relayed(Relayed(end)) => end.writer_thread().and_then(WriterThread::result),
        }
    }

    /// Cancels a read. A write goes on: the next wait for the same bytes finds it.
    pub(in crate::base::wait) fn stop(&mut self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.stop(),
            Running::Begun(end) => end.take_result(),
            // What is not done is left when this is dropped.
            Running::Relayed(Relayed(end)) => end.writer_thread().and_then(WriterThread::result),
        }
    }
}

impl Transfers {
    pub(super) fn of(slots: &[Slot<'_>]) -> io::Result<Transfers> {
        if !slots.iter().any(|slot| matches!(slot, Slot::Read(..) | Slot::Write(..))) {
            let (running, of_writes) = (Vec::new(), Vec::new());
            return Ok(Transfers { running, event: None, of_writes, looking: false });
        }
        let running = slots.iter().map(|_| None).collect();
        let event = Some(Arc::new(Wake::new()?));
        let of_writes = slots.iter().map(event_of_write).collect::<io::Result<_>>()?;
        Ok(Transfers { running, event, of_writes, looking: false })
    }

    /// The event of the write in that place.
    pub(super) fn event_of(&self, place: usize) -> Option<BorrowedHandle<'_>> {
        let event = self.of_writes.get(place)?.as_ref()?;
        Some(event.as_handle())
    }

    pub(super) fn event(&self) -> Option<BorrowedHandle<'_>> {
        self.event.as_ref().map(|event| event.as_handle())
    }

    /// Whether there is a pipe that no event tells of.
    pub(super) fn has_to_look(&self) -> bool {
        self.looking
    }

    /// Starts what is not running, and takes what is done. Says how much that is.
    pub(super) fn go_on(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let Some(event) = &self.event else { return 0 };
        // Whatever is done from here on raises it, or is found below: to start one lowers it too.
        event.lower();
        let mut done = 0;
        self.looking = false;
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            if running.is_some() || !is_transfer(slot) {
                continue;
            }
            match start(slot, event) {
                Start::Running(started) => *running = Some(started),
                Start::Done => done += 1,
                Start::Look => self.looking = true,
            }
        }
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            let Some(result) = running.as_ref().and_then(Running::result) else { continue };
            *running = None;
            match finish(slot, Some(result)) {
                true => done += 1,
                // Nothing has come of it: it is started again.
                false => event.raise(),
            }
        }
        done
    }

    /// Cancels the reads that are not done. Returns the number of transfers that were, all the same.
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

/// What has come of starting a transfer.
pub(in crate::base::wait) enum Start {
    Running(Running),
    /// The slot is done.
    Done,
    /// It cannot be started, and is to be tried again.
    Look,
}

fn is_transfer(slot: &Slot<'_>) -> bool {
    matches!(slot, Slot::Read(..) | Slot::Write(..))
}

pub(in crate::base::wait) fn start(slot: &mut Slot<'_>, event: &Arc<Wake>) -> Start {
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
            // SAFETY: the slot has the pipe and the buffer, and is not touched while this runs; it
            // is stopped, or dropped, before the slot is given back, and before the event goes.
            let operation = unsafe {
                Operation::read(pipe.as_raw_handle(), event, spare.as_mut_ptr().cast(), room)
            };
            Start::Running(Running::Operation(operation))
        }
        Slot::Write(pipe, bytes, from) => {
            let end = pipe.end();
            let piece = end.piece(bytes.get(*from..).unwrap_or_default());
            if piece.is_empty() {
                return complete(slot, Ok(0));
            }
            if !end.is_overlapped() {
                return relay_or_write(slot, &end, event);
            }
            match end.start_write(WriteRequest { bytes: Arc::clone(bytes), from: *from }) {
                Ok(()) => Start::Running(Running::Begun(end)),
                Err(error) => complete(slot, Err(error)),
            }
        }
        _ => Start::Done,
    }
}

/// The event of a write that is left to the kernel.
fn event_of_write(slot: &Slot<'_>) -> io::Result<Option<Arc<Wake>>> {
    match slot {
        Slot::Write(pipe, ..) => {
            let end = pipe.end();
            end.is_overlapped().then(|| end.event()).transpose()
        }
        _ => Ok(None),
    }
}

fn make_room(buffer: &mut Vec<u8>) -> io::Result<()> {
    if buffer.len() == buffer.capacity() {
        buffer.try_reserve_exact(FIRST_READ_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    Ok(())
}

/// A pipe that cannot overlap is read when something is there.
fn read_now(slot: &mut Slot<'_>) -> Start {
    let Slot::Read(pipe, buffer) = slot else { return Start::Done };
    match pipe.try_read_spare(buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Start::Look,
        result => complete(slot, result),
    }
}

/// An end that cannot overlap is written to by a thread, where a write may have to wait.
fn relay_or_write(slot: &mut Slot<'_>, end: &Arc<WriteEnd>, event: &Arc<Wake>) -> Start {
    let Slot::Write(pipe, bytes, from) = slot else { return Start::Done };
    if let Some(thread) = end.writer_thread() {
        thread.start(WriteRequest { bytes: Arc::clone(bytes), from: *from }, Arc::clone(event));
        return Start::Running(Running::Relayed(Relayed(Arc::clone(end))));
    }
    let result = pipe.try_write(bytes.get(*from..).unwrap_or_default());
    complete(slot, result)
}

fn complete(slot: &mut Slot<'_>, result: io::Result<usize>) -> Start {
    *slot = match mem::take(slot) {
        Slot::Read(pipe, buffer) => Slot::ReadDone(pipe, buffer, result),
        Slot::Write(pipe, bytes, _) => Slot::WriteDone(pipe, bytes, result),
        other => other,
    };
    Start::Done
}

/// Puts what has come of an operation into its slot. `false`: nothing has, and it goes on.
pub(in crate::base::wait) fn finish(
    slot: &mut Slot<'_>,
    result: Option<io::Result<usize>>,
) -> bool {
    let Some(result) = result else { return false };
    let result = match slot {
        Slot::Read(pipe, buffer) => {
            let result = map_read_result(pipe.as_handle(), result);
            if let Some(Ok(count)) = result {
                // SAFETY: the operation has filled that many bytes behind the length.
                unsafe { buffer.set_len(buffer.len() + count) };
            }
            result
        }
        Slot::Write(..) => Some(map_write_result(result)),
        _ => None,
    };
    match result {
        Some(result) => matches!(complete(slot, result), Start::Done),
        None => false,
    }
}
