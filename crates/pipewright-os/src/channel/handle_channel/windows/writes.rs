//! The write that is under way while the pipe has no room for it.

use std::io::{self, IoSlice};
use std::os::windows::io::{
    AsHandle, AsRawHandle as _, BorrowedHandle, IntoRawHandle as _, OwnedHandle,
};
use std::sync::Arc;

use super::handle_transfer::Outgoing;
use super::packets;
use crate::base::overlapped::Operation;
use crate::base::pipe::{of_write, room};
use crate::base::wake::Wake;

/// # Drop
/// Cancels the write, and waits until the kernel has let go of the buffer.
#[derive(Debug)]
pub(super) struct Writes {
    /// Dropped before what the kernel reads and raises. The buffer is not touched meanwhile.
    running: Option<Operation>,
    /// What is being written.
    buffer: Vec<u8>,
    /// What it tells the numbers of, and the other side takes from us: ours until it can.
    lent: Vec<OwnedHandle>,
    /// Up while nothing is being written.
    event: Wake,
    file: Arc<OwnedHandle>,
}

impl Writes {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<Writes> {
        let event = Wake::new()?;
        event.raise();
        Ok(Writes { running: None, buffer: Vec::new(), lent: Vec::new(), event, file })
    }

    pub(super) fn event(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }

    /// How much is being written.
    pub(super) fn unsent(&self) -> usize {
        let Some(running) = &self.running else { return 0 };
        if running.result().is_some() { 0 } else { self.buffer.len() }
    }

    /// Whether nothing is being written any more.
    pub(super) fn settle(&mut self) -> io::Result<bool> {
        let Some(running) = &self.running else { return Ok(true) };
        let Some(result) = running.result() else { return Ok(false) };
        self.running = None;
        // One that is given up has lowered it.
        self.event.raise();
        match of_write(result) {
            Ok(count) if count >= self.buffer.len() => {
                self.buffer.clear();
                for handle in self.lent.drain(..) {
                    // The other side's from here on: it takes them out of this process.
                    let _ = handle.into_raw_handle();
                }
                Ok(true)
            }
            done => {
                // A pipe takes all or nothing.
                let error = done.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                self.buffer.clear();
                self.lent.clear();
                Err(error)
            }
        }
    }

    /// Begins to write as much of the parts as one packet takes. Only where nothing is being written. How
    /// much that is.
    pub(super) fn begin(
        &mut self,
        introduction: Option<u32>,
        given: Outgoing,
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
        // taken out of here or dropped, which is before them.
        let write = unsafe { Operation::write_to_last(file, &self.event, from, count, room) };
        if write.result().is_some() {
            // One that could not be started raises nothing.
            self.event.raise();
        }
        self.running = Some(write);
    }
}
