//! The reads and writes of one wait.

use std::io;
use std::mem;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle};
use std::sync::Arc;

use super::super::{FIRST_READ_BYTES, Slot};
use crate::overlapped::Operation;
use crate::pipe::{Job, MOST_READ_BYTES, Relay, WriteEnd, of_read, of_write};
use crate::wake::Wake;

pub(super) struct Transfers {
    /// One for each slot. Dropped before the event, which the kernel may raise until then.
    running: Vec<Option<Running>>,
    /// Raised when any of them is done; `None`: there are none.
    event: Option<Arc<Wake>>,
    looking: bool,
}

#[derive(Debug)]
pub(in crate::mux) enum Running {
    /// The kernel does it.
    Operation(Operation),
    /// A thread of the end's own does it.
    Relayed(Relayed),
}

/// What the thread of that end is writing.
#[derive(Debug)]
pub(in crate::mux) struct Relayed(Arc<WriteEnd>);

impl Drop for Relayed {
    fn drop(&mut self) {
        let _ = self.0.relay().map(Relay::stop);
    }
}

impl Running {
    pub(in crate::mux) fn result(&self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.result(),
            Running::Relayed(Relayed(end)) => end.relay().and_then(Relay::result),
        }
    }

    pub(in crate::mux) fn stop(&mut self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.stop(),
            Running::Relayed(Relayed(end)) => end.relay().and_then(Relay::stop),
        }
    }
}

impl Transfers {
    pub(super) fn of(slots: &[Slot<'_>]) -> io::Result<Transfers> {
        if !slots.iter().any(|slot| matches!(slot, Slot::Read(..) | Slot::Write(..))) {
            return Ok(Transfers { running: Vec::new(), event: None, looking: false });
        }
        let running = slots.iter().map(|_| None).collect();
        Ok(Transfers { running, event: Some(Arc::new(Wake::new()?)), looking: false })
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

    /// Cancels what is not done. Says how many were, all the same.
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
pub(in crate::mux) enum Start {
    Running(Running),
    /// The slot is done.
    Done,
    /// It cannot be started, and is to be tried again.
    Look,
}

fn is_transfer(slot: &Slot<'_>) -> bool {
    matches!(slot, Slot::Read(..) | Slot::Write(..))
}

pub(in crate::mux) fn start(slot: &mut Slot<'_>, event: &Arc<Wake>) -> Start {
    match slot {
        Slot::Read(pipe, buffer) => {
            if let Err(error) = make_room(buffer) {
                return complete(slot, Err(error));
            }
            if !pipe.overlaps() {
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
            if !end.overlaps() {
                return relay_or_write(slot, &end, event);
            }
            // SAFETY: as above; the bytes are shared, and so do not change; and nobody else has the
            // writer, to hang it up.
            let operation =
                unsafe { Operation::write(end.raw(), event, piece.as_ptr(), piece.len()) };
            Start::Running(Running::Operation(operation))
        }
        _ => Start::Done,
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
    if let Some(relay) = end.relay() {
        relay.start(Job { bytes: Arc::clone(bytes), from: *from }, Arc::clone(event));
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
pub(in crate::mux) fn finish(slot: &mut Slot<'_>, result: Option<io::Result<usize>>) -> bool {
    let Some(result) = result else { return false };
    let result = match slot {
        Slot::Read(pipe, buffer) => {
            let result = of_read(pipe.as_handle(), result);
            if let Some(Ok(count)) = result {
                // SAFETY: the operation has filled that many bytes behind the length.
                unsafe { buffer.set_len(buffer.len() + count) };
            }
            result
        }
        Slot::Write(..) => of_write(result),
        _ => None,
    };
    match result {
        Some(result) => matches!(complete(slot, result), Start::Done),
        None => false,
    }
}
