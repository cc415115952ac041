//! A write that stays with the kernel from one wait to the next.
//!
//! A cancelled write does not report how much of it was read: a read can cross from earlier bytes
//! into those of a pending write, and the cancel then discards the rest and reports nothing.
//! Sending the bytes again would send that part twice. So a started write stays pending until it is
//! done. It is cancelled only when the pipe end is abandoned.

use std::io;
use std::os::windows::io::AsHandle as _;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{WriteEnd, WriteRequest, state};
use crate::base::overlapped::OverlappedIo;
use crate::base::wake::Wake;

/// A pending write.
///
/// # Drop
/// Cancels the write, and waits until the kernel has released the bytes.
#[derive(Debug)]
pub(super) struct PendingWrite {
    /// Dropped before the bytes that the kernel reads and the event that it sets.
    operation: OverlappedIo,
    request: WriteRequest,
    /// The number of bytes that it writes.
    count: usize,
    _event: Arc<Wake>,
}

impl PendingWrite {
    /// Returns true if a write of those bytes begins with this write.
    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.piece())
    }

    fn piece(&self) -> &[u8] {
        self.request.rest().get(..self.count).unwrap_or_default()
    }
}

impl WriteEnd {
    /// Returns the event that is set when the pending write is done.
    pub(crate) fn event(&self) -> io::Result<Arc<Wake>> {
        if let Some(event) = self.event.get() {
            return Ok(Arc::clone(event));
        }
        let event = Arc::new(Wake::new()?);
        Ok(Arc::clone(self.event.get_or_init(|| event)))
    }

    /// Starts to write as much as one write may take, or continues a pending write of the same
    /// bytes.
    ///
    /// Cancels a pending write of other bytes.
    pub(crate) fn start_write(&self, request: WriteRequest) -> io::Result<()> {
        let event = self.event()?;
        let mut place = self.pending();
        let is_same_write = |pending: &PendingWrite| {
            pending.request.is_same(&request) || pending.begins(request.rest())
        };
        if place.as_ref().is_some_and(is_same_write) {
            return Ok(());
        }
        *place = None;
        let piece = self.piece(request.rest());
        let (from, count) = (piece.as_ptr(), piece.len());
        let room = state::room(self.handle.as_handle());
        // SAFETY: the end keeps the file open, and drops this first. The bytes are shared, so they
        // do not change, and the event is stored beside them.
        let operation =
            unsafe { OverlappedIo::write_outliving_thread(self.raw(), &event, from, count, room) };
        *place = Some(PendingWrite { operation, request, count, _event: event });
        Ok(())
    }

    /// Takes the result of the pending write. `None`: it is not done.
    pub(crate) fn take_result(&self) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let result = place.as_ref()?.operation.result()?;
        *place = None;
        Some(result)
    }

    /// Takes the result of the pending write if those bytes begin with it. Cancels a pending write
    /// of other bytes.
    ///
    /// # Errors
    /// `WouldBlock`: it is not done.
    pub(super) fn take_result_for(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let pending = place.as_ref()?;
        if !pending.begins(bytes) {
            *place = None;
            return None;
        }
        let would_block = || Err(io::ErrorKind::WouldBlock.into());
        let result = pending.operation.result();
        if result.is_some() {
            *place = None;
        }
        Some(result.unwrap_or_else(would_block))
    }

    /// Waits for the pending write if those bytes begin with it, and takes its result.
    pub(super) fn wait_for_pending(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        // Without the lock: other threads may query meanwhile.
        let mut pending = self.pending().take()?;
        pending.begins(bytes).then(|| pending.operation.wait())
    }

    /// Cancels the pending write, of the kernel or of the writer thread.
    pub(super) fn cancel_pending(&self) {
        *self.pending() = None;
        if let Some(writer_thread) = self.writer_thread.get() {
            writer_thread.close();
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<PendingWrite>> {
        // Consistent at any time: it is only ever replaced.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
