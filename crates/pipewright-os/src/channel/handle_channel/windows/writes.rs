//! The write that is in progress while the pipe has no room for it.

use std::io::{self, IoSlice};
use std::os::windows::io::{
    AsHandle, AsRawHandle as _, BorrowedHandle, IntoRawHandle as _, OwnedHandle,
};
use std::sync::Arc;

use super::handle_transfer::OutgoingHandles;
use super::packets;
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{map_write_result, room};
use crate::base::wake::Wake;

/// The writing side of a channel end.
///
/// # Drop
/// Cancels the write, and waits until the kernel has released the buffer.
#[derive(Debug)]
pub(super) struct ChannelWriter {
    /// Dropped before the buffer and the event, which the kernel uses. The buffer is not touched meanwhile.
    running: Option<OverlappedIo>,
    /// The bytes being written.
    buffer: Vec<u8>,
    /// The handles in the packet, which the other side takes from this process. Owned here until the packet is
    /// written.
    lent: Vec<OwnedHandle>,
    /// Set while no write is in progress.
    event: Wake,
    file: Arc<OwnedHandle>,
}

impl ChannelWriter {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<ChannelWriter> {
        let event = Wake::new()?;
        event.raise();
        Ok(ChannelWriter { running: None, buffer: Vec::new(), lent: Vec::new(), event, file })
    }

    pub(super) fn event(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }

    /// Returns the number of bytes being written.
    pub(super) fn unsent(&self) -> usize {
        let Some(running) = &self.running else { return 0 };
        if running.result().is_some() { 0 } else { self.buffer.len() }
    }

    /// Returns true if no write is in progress any more.
    pub(super) fn settle(&mut self) -> io::Result<bool> {
        let Some(running) = &self.running else { return Ok(true) };
        let Some(result) = running.result() else { return Ok(false) };
        self.running = None;
        // A cancelled write has reset the event.
        self.event.raise();
        match map_write_result(result) {
            Ok(count) if count >= self.buffer.len() => {
                self.buffer.clear();
                for handle in self.lent.drain(..) {
                    // Owned by the other side now, which removes it from this process.
                    let _ = handle.into_raw_handle();
                }
                Ok(true)
            }
            done => {
                // A pipe accepts all bytes or none.
                let error = done.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                self.buffer.clear();
                self.lent.clear();
                Err(error)
            }
        }
    }

    /// Starts to write one packet of the parts. Requires that no write is in progress. Returns the number of
    /// bytes in the packet.
    pub(super) fn begin(
        &mut self,
        introduction: Option<u32>,
        given: OutgoingHandles,
        parts: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.buffer.clear();
        if let Some(id) = introduction {
            packets::encode_process(&mut self.buffer, id);
        }
        let count = packets::encode(&mut self.buffer, &given.numbers, parts);
        self.lent = given.lent;
        self.start();
        self.settle()?;
        Ok(count)
    }

    fn start(&mut self) {
        let (from, count) = (self.buffer.as_ptr(), self.buffer.len());
        let file = self.file.as_raw_handle();
        let room = room(self.file.as_handle());
        // SAFETY: the file and the event stay open, and the buffer is not touched, until the operation is
        // removed from here or dropped, which happens before they are.
        let write =
            unsafe { OverlappedIo::write_outliving_thread(file, &self.event, from, count, room) };
        if write.result().is_some() {
            // A write that could not be started does not set the event.
            self.event.raise();
        }
        self.running = Some(write);
    }
}
