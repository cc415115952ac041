//! A write that is left to the kernel from one wait to the next.
//!
//! A write that is cancelled does not tell how much of it was read: a read can cross from the bytes in
//! front into those of a write that waits, and the cancel then discards the rest and reports nothing. To
//! send the bytes again would send those twice. So a write stays begun until it is done, and is cancelled
//! only when the pipe is given up.

use std::io;
use std::os::windows::io::AsHandle as _;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Job, WriteEnd, state};
use crate::base::overlapped::Operation;
use crate::base::wake::Wake;

/// A write that was begun.
///
/// # Drop
/// Cancels it, and waits until the kernel has let go of the bytes.
#[derive(Debug)]
pub(super) struct Pending {
    /// Dropped before what the kernel reads and raises.
    operation: Operation,
    job: Job,
    /// The number of bytes that it writes.
    count: usize,
    _event: Arc<Wake>,
}

impl Pending {
    /// True if to write those bytes is to begin with this write.
    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.piece())
    }

    fn piece(&self) -> &[u8] {
        self.job.rest().get(..self.count).unwrap_or_default()
    }
}

impl WriteEnd {
    /// The event that is up when a write that was begun is done.
    pub(crate) fn event(&self) -> io::Result<Arc<Wake>> {
        if let Some(event) = self.event.get() {
            return Ok(Arc::clone(event));
        }
        let event = Arc::new(Wake::new()?);
        Ok(Arc::clone(self.event.get_or_init(|| event)))
    }

    /// Begins to write as much as one write may take, or goes on with a write that was begun.
    ///
    /// A write of something else is given up, and cancelled.
    pub(crate) fn begin(&self, job: Job) -> io::Result<()> {
        let event = self.event()?;
        let mut place = self.pending();
        let is_begun = |begun: &Pending| begun.job.is_same(&job) || begun.begins(job.rest());
        if place.as_ref().is_some_and(is_begun) {
            return Ok(());
        }
        *place = None;
        let piece = self.piece(job.rest());
        let (from, count) = (piece.as_ptr(), piece.len());
        let room = state::room(self.handle.as_handle());
        // SAFETY: the end has the file open, and drops this first; the bytes are shared, and so do not
        // change, and the event is kept beside them.
        let operation = unsafe { Operation::write_to_last(self.raw(), &event, from, count, room) };
        *place = Some(Pending { operation, job, count, _event: event });
        Ok(())
    }

    /// Takes the result of the write that was begun. `None`: it is not done.
    pub(crate) fn take_result(&self) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let result = place.as_ref()?.operation.result()?;
        *place = None;
        Some(result)
    }

    /// The same, if that write begins those bytes. A write of something else is given up, and cancelled.
    ///
    /// # Errors
    /// `WouldBlock`: it is not done.
    pub(super) fn take_begun(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let begun = place.as_ref()?;
        if !begun.begins(bytes) {
            *place = None;
            return None;
        }
        let would_block = || Err(io::ErrorKind::WouldBlock.into());
        let result = begun.operation.result();
        if result.is_some() {
            *place = None;
        }
        Some(result.unwrap_or_else(would_block))
    }

    /// Waits for the write that was begun, if it begins those bytes, and takes its result.
    pub(super) fn wait_for_begun(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        // Not under the lock: others may ask meanwhile.
        let mut begun = self.pending().take()?;
        begun.begins(bytes).then(|| begun.operation.wait())
    }

    /// Cancels the write that was begun, whoever does it.
    pub(super) fn give_up(&self) {
        *self.pending() = None;
        if let Some(relay) = self.relay.get() {
            relay.end();
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        // Whole at any time: it is only ever replaced.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
