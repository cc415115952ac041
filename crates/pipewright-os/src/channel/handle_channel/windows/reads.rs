//! The read that is always under way, and what it has brought.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle as _, BorrowedHandle, OwnedHandle};
use std::sync::Arc;

use super::super::{READ_AHEAD_BYTES, Wait};
use crate::base::overlapped::Operation;
use crate::base::pipe::of_read;
use crate::base::wake::Wake;

/// # Drop
/// Ends the read, and waits until the kernel has let go of the buffer.
#[derive(Debug)]
pub(super) struct Reads {
    /// Dropped before what the kernel writes to and raises. The buffer is not touched meanwhile.
    running: Option<Operation>,
    /// What has come. Behind its length, the room for what will.
    buffer: Vec<u8>,
    /// What stands before this place has been taken.
    start: usize,
    /// Up when there is something to take in, or will never be.
    event: Wake,
    /// We have raised it while a read was under way.
    is_raised: bool,
    file: Arc<OwnedHandle>,
    has_ended: bool,
    calls: u64,
}

/// What has come of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    Nothing,
    End,
}

impl Reads {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<Reads> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ_AHEAD_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let event = Wake::new()?;
        Ok(Reads {
            running: None,
            buffer,
            start: 0,
            event,
            is_raised: false,
            file,
            has_ended: false,
            calls: 0,
        })
    }

    pub(super) fn event(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// What has come and was not taken.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Takes the first of it away.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
    }

    /// Begins to read, unless that is under way, or there is something to take first.
    pub(super) fn go_on(&mut self) {
        if self.running.is_some() || self.has_ended || !self.bytes().is_empty() {
            return;
        }
        self.buffer.clear();
        self.start = 0;
        let spare = self.buffer.spare_capacity_mut();
        let (to, room) = (spare.as_mut_ptr().cast(), spare.len());
        // SAFETY: the file and the event stay open, and the buffer is not touched, until the operation is
        // taken out of here or dropped, which is before them.
        let read = unsafe { Operation::read(self.file.as_raw_handle(), &self.event, to, room) };
        if read.result().is_some() {
            // One that could not be started raises nothing.
            self.event.raise();
        }
        self.running = Some(read);
        self.is_raised = false;
        self.calls += 1;
    }

    /// Has the event be up where something is left to take, or `more` is, and else as the read says.
    pub(super) fn tell(&mut self, more: bool) {
        if more || !self.bytes().is_empty() {
            self.event.raise();
            self.is_raised = true;
        } else if std::mem::take(&mut self.is_raised) {
            self.event.lower();
            if self.has_ended || self.running.as_ref().is_none_or(|read| read.result().is_some()) {
                // It was done before that.
                self.event.raise();
            }
        }
    }

    /// What has come of the read.
    pub(super) fn finish(&mut self, wait: Wait) -> io::Result<Received> {
        loop {
            if self.has_ended {
                return Ok(Received::End);
            }
            self.go_on();
            let Some(read) = &mut self.running else { return Ok(Received::Bytes) };
            let result = match (read.result(), wait) {
                (Some(result), _) => result,
                (None, Wait::Yes) => read.wait(),
                (None, Wait::No) => return Ok(Received::Nothing),
            };
            self.running = None;
            match of_read(self.file.as_handle(), result) {
                Some(Ok(0)) => {
                    self.has_ended = true;
                    self.event.raise();
                }
                Some(Ok(count)) => {
                    // SAFETY: the operation has filled that many bytes behind the length, which was 0.
                    unsafe { self.buffer.set_len(count) };
                    return Ok(Received::Bytes);
                }
                Some(Err(error)) => {
                    self.event.raise();
                    return Err(error);
                }
                // The thread that began it has ended, and so it; or somebody has written nothing.
                None if wait == Wait::No => {
                    self.go_on();
                    return Ok(Received::Nothing);
                }
                None => {}
            }
        }
    }

    /// Whether the file cannot be read at all.
    pub(super) fn is_refused(&self) -> bool {
        let result = self.running.as_ref().and_then(Operation::result);
        let what = result.and_then(|result| of_read(self.file.as_handle(), result));
        matches!(what, Some(Err(_)))
    }
}
