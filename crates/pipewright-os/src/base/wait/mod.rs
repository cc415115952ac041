//! Waits for bytes, exits and wake-ups from several sources, on one thread.
//!
//! The interface is completion: a caller passes a buffer and gets it back with bytes in it, not a
//! report that a read might now succeed. `poll(2)` can imitate that in a few lines; overlapped I/O
//! could imitate readiness only with hidden buffers. So the loop above this module is the same on
//! every OS.

mod descriptor;
#[cfg(feature = "tokio")]
mod task;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::base::event::{EventSource, WaitEvent};
use crate::base::pipe::{PipeReader, PipeWriter};

pub use descriptor::WaitDescriptor;
#[cfg(feature = "tokio")]
pub(crate) use task::current_runtime;
#[cfg(feature = "tokio")]
pub use task::{Watch, check_runtime};

/// The spare capacity that an empty buffer gets: the output of an ordinary program fits, and a
/// silent stream takes no memory.
pub const FIRST_READ_BYTES: usize = 16 << 10;

/// A source to wait for, or the result of that wait.
///
/// A caller keeps an array of slots, fills in its requests, calls [`any`], and takes out
/// (`std::mem::take`) the slots that are done. The next call still waits for a slot that is not
/// done; taking out or dropping the slot abandons its wait. The slot owns its pipe and buffer
/// meanwhile, so that memory the kernel may still write to cannot be freed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Slot<'a> {
    /// Nothing.
    #[default]
    Off,
    /// Reads into the spare capacity of the buffer. A buffer without any gets [`FIRST_READ_BYTES`]
    /// when there is something to read (Windows: at the first wait).
    Read(PipeReader, Vec<u8>),
    /// Done: the pipe, the buffer, and the number of bytes appended to it; 0 is the end of the
    /// stream.
    ReadDone(PipeReader, Vec<u8>, io::Result<usize>),
    /// Writes the bytes from that offset on, as much as fits at once.
    Write(PipeWriter, Arc<Vec<u8>>, usize),
    /// Done: the number of bytes written.
    WriteDone(PipeWriter, Arc<Vec<u8>>, io::Result<usize>),
    /// Waits for the event.
    Event(&'a dyn WaitEvent),
    /// Waits for the event, which the slot owns.
    Owned(Arc<dyn WaitEvent>),
    /// Waits until the event's source can take more: the end of a channel that was full.
    Room(&'a dyn WaitEvent),
    /// Done: the event has happened.
    EventDone,
}

impl Slot<'_> {
    /// Returns the slot without its lifetime if it owns all that it needs. A slot that borrows
    /// becomes [`Slot::Off`]: fill it in again before the next wait.
    #[must_use]
    pub fn detach(self) -> Slot<'static> {
        match self {
            Slot::Read(pipe, buffer) => Slot::Read(pipe, buffer),
            Slot::ReadDone(pipe, buffer, result) => Slot::ReadDone(pipe, buffer, result),
            Slot::Write(pipe, bytes, from) => Slot::Write(pipe, bytes, from),
            Slot::WriteDone(pipe, bytes, result) => Slot::WriteDone(pipe, bytes, result),
            Slot::Owned(event) => Slot::Owned(event),
            Slot::EventDone => Slot::EventDone,
            Slot::Off | Slot::Event(_) | Slot::Room(_) => Slot::Off,
        }
    }

    /// Returns the event that the slot waits for, and its source.
    fn event(&self) -> Option<(&dyn WaitEvent, EventSource<'_>)> {
        match self {
            Slot::Event(event) => Some((*event, event.source())),
            Slot::Owned(event) => Some((&**event, event.source())),
            Slot::Room(event) => Some((*event, event.room())),
            _ => None,
        }
    }

    /// Completes the slot if no system object reports its event and the event has happened.
    fn complete_if_happened(&mut self) -> bool {
        let happened = self.event().is_some_and(|(event, source)| {
            matches!(source, EventSource::Unwaitable(_)) && event.has_happened()
        });
        if happened {
            *self = Slot::EventDone;
        }
        happened
    }
}

/// Reserves [`FIRST_READ_BYTES`] for a buffer without spare capacity.
fn make_room(buffer: &mut Vec<u8>) -> io::Result<()> {
    if buffer.len() == buffer.capacity() {
        buffer.try_reserve_exact(FIRST_READ_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    Ok(())
}

/// Waits until at least one slot is done or the deadline has passed.
///
/// Returns the number of slots that are done: 0 at the deadline, or if no slot can ever be done.
///
/// # Platform
/// Linux: `ppoll`, then one `read` or `write` for each ready slot. macOS: `poll`, which has a
/// resolution of milliseconds; a process is a kqueue there, which can be polled. A device that
/// cannot be polled (`/dev/tty`; a terminal by its own name can) counts as ready, and the call on
/// it may block.
///
/// Windows: overlapped `ReadFile` and `WriteFile` for all slots, then one `WaitForMultipleObjects`
/// for their common event, every process and flag, and the events of channel ends; beyond 61 of
/// them `RegisterWaitForSingleObject`. Before the return, a read that is not done is cancelled
/// (`CancelIoEx`), and the cancel is waited for; a read that finished first counts, so that no byte
/// is lost. A write that is not done stays pending, and the next wait or write of the same bytes to
/// that end continues it, so that no byte is written twice. It is cancelled only when the end is
/// dropped or other bytes are written to it; a reader may have taken part of it by then. A console is waited for and its keys are
/// taken (`ReadConsoleInputW`); while it edits lines it is checked every 5 ms for one that is complete. A deadline
/// less than one clock tick away gets a timer. An end that is not overlapped is checked every 5 ms
/// (`PeekNamedPipe`), or written to by a thread of its own, with the same rules
/// (`CancelSynchronousIo`).
///
/// # Errors
/// The errors of the wait itself (`ENOMEM`, no more events available); an error of one source is in
/// its slot.
#[doc(alias = "poll")]
#[doc(alias = "WaitForMultipleObjects")]
pub fn any(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    imp::wait(slots, deadline)
}
