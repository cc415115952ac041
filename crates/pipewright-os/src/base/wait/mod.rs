//! Bytes, exits and wake-ups from several sources, on one thread.
//!
//! The shape is completion: a caller hands over a buffer and gets it back with bytes in it, never
//! word that a read might now succeed. `poll(2)` imitates that in a few lines; overlapped I/O
//! could imitate readiness only with hidden buffers. So the loop above is one loop for every OS.

#[cfg(feature = "tokio")]
mod task;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(unix)]
pub(crate) use unix::poll_readable;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::base::event::{Event, Source};
use crate::base::pipe::{PipeReader, PipeWriter};

#[cfg(feature = "tokio")]
pub(crate) use task::current_runtime;
#[cfg(feature = "tokio")]
pub use task::{Watch, check_runtime};

/// How much room an empty buffer is given: an ordinary program's output fits, and a stream that
/// says nothing takes no memory.
pub const FIRST_READ_BYTES: usize = 16 << 10;

/// One thing to wait for, or what has come of it.
///
/// A caller keeps an array of slots, fills in what it wants, calls [`any`], and takes out
/// (`std::mem::take`) what is done. A slot that is not done is still waited for by the next call;
/// taking it out or dropping it gives the wait up. Pipes and buffers are owned by their slot
/// meanwhile, so that nothing the kernel may still write to can go away under it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Slot<'a> {
    /// Nothing.
    #[default]
    Off,
    /// Read into the spare capacity of the buffer. A buffer without any is given
    /// [`FIRST_READ_BYTES`] when there is something to read (Windows: when it is first waited for).
    Read(PipeReader, Vec<u8>),
    /// Done: the pipe and the buffer, with that many more bytes; 0 is the end of the stream.
    ReadDone(PipeReader, Vec<u8>, io::Result<usize>),
    /// Write what stands in the bytes from that place on, as much as fits at once.
    Write(PipeWriter, Arc<Vec<u8>>, usize),
    /// Done: that many bytes were taken.
    WriteDone(PipeWriter, Arc<Vec<u8>>, io::Result<usize>),
    /// Wait for the event.
    Event(&'a dyn Event),
    /// Wait for the event, which the slot owns.
    Owned(Arc<dyn Event>),
    /// Wait until the event's source can take more: the end of a channel that was full.
    Room(&'a dyn Event),
    /// Done: the event has happened.
    EventDone,
}

impl Slot<'_> {
    /// The slot on its own, where it holds all that it needs. A slot that only borrows becomes [`Slot::Off`], to be
    /// filled in again for the next wait.
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
    fn event(&self) -> Option<(&dyn Event, Source<'_>)> {
        match self {
            Slot::Event(event) => Some((*event, event.source())),
            Slot::Owned(event) => Some((&**event, event.source())),
            Slot::Room(event) => Some((*event, event.room())),
            _ => None,
        }
    }
}

/// Waits until at least one slot is done or the deadline has passed.
///
/// Returns how many are done: 0 is the deadline, or no slot that could ever be done.
///
/// # Platform
/// Linux: `ppoll`, then one `read` or `write` for each slot that is ready. macOS: `poll`, which counts
/// milliseconds; a process is a kqueue there, and that can be polled. A device that cannot be polled
/// (`/dev/tty`; a terminal by its own name can) counts as ready, and the call on it may block.
///
/// Windows: overlapped `ReadFile` and `WriteFile` for all of them, then one `WaitForMultipleObjects` for
/// their common event, every process and flag, and the events of a link's end; for those beyond 61 `RegisterWaitForSingleObject`.
/// Before the return a read that is not done is cancelled (`CancelIoEx`) and that is waited for; one that
/// was done first counts, so that no byte is lost. A write that is not done stays begun, and the next wait
/// or write of the same bytes to that end goes on with it, so that none is written twice: only when the end
/// is dropped, or something else is written to it, is it cancelled. A reader may have taken some of it by
/// then. A deadline less than a tick of the clock away has a timer of its own. An end that does not overlap
/// is looked at every 5 ms (`PeekNamedPipe`), or written to by a thread of its own, likewise
/// (`CancelSynchronousIo`).
///
/// # Errors
/// What the wait itself reports (`ENOMEM`, no room for an event); an error of one source is in its slot.
#[doc(alias = "poll")]
#[doc(alias = "WaitForMultipleObjects")]
pub fn any(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    imp::wait(slots, deadline)
}
