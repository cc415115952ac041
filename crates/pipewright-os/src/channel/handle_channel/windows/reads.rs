//! The read that is always in progress, and the bytes it has received.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle as _, BorrowedHandle, OwnedHandle};
use std::sync::Arc;

use super::super::{Blocking, READ_AHEAD_BYTES};
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::map_read_result;
use crate::base::wake::Wake;

/// The reading side of a channel end.
///
/// # Drop
/// Cancels the read, and waits until the kernel has released the buffer.
#[derive(Debug)]
pub(super) struct ChannelReader {
    /// Dropped before the buffer and the event, which the kernel uses. The buffer is not touched meanwhile.
    running: Option<OverlappedIo>,
    /// The bytes received. The next read fills the space behind them.
    buffer: Vec<u8>,
    /// The number of bytes already consumed.
    start: usize,
    /// Set when something can be received, or never will be.
    event: Wake,
    /// True if this side has set the event while a read was in progress.
    is_raised: bool,
    file: Arc<OwnedHandle>,
    has_ended: bool,
    calls: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadResult {
    Bytes,
    Nothing,
    End,
}

impl ChannelReader {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<ChannelReader> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ_AHEAD_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let event = Wake::new()?;
        Ok(ChannelReader {
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

    /// Returns the bytes received and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Consumes bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
    }

    /// Starts a read, unless one is in progress or bytes are left to consume.
    pub(super) fn go_on(&mut self) {
        if self.running.is_some() || self.has_ended || !self.bytes().is_empty() {
            return;
        }
        self.buffer.clear();
        self.start = 0;
        let spare = self.buffer.spare_capacity_mut();
        let (to, room) = (spare.as_mut_ptr().cast(), spare.len());
        // SAFETY: the file and the event stay open, and the buffer is not touched, until the operation is
        // removed from here or dropped, which happens before they are.
        let read = unsafe { OverlappedIo::read(self.file.as_raw_handle(), &self.event, to, room) };
        if read.result().is_some() {
            // A read that could not be started does not set the event.
            self.event.raise();
        }
        self.running = Some(read);
        self.is_raised = false;
        self.calls += 1;
    }

    /// Sets the event if bytes are left or `more` is true. Otherwise the state of the read decides.
    pub(super) fn tell(&mut self, more: bool) {
        if more || !self.bytes().is_empty() {
            self.event.raise();
            self.is_raised = true;
        } else if std::mem::take(&mut self.is_raised) {
            self.event.lower();
            if self.has_ended || self.running.as_ref().is_none_or(|read| read.result().is_some()) {
                // The read completed before that.
                self.event.raise();
            }
        }
    }

    pub(super) fn finish(&mut self, wait: Blocking) -> io::Result<ReadResult> {
        loop {
            if self.has_ended {
                return Ok(ReadResult::End);
            }
            self.go_on();
            let Some(read) = &mut self.running else { return Ok(ReadResult::Bytes) };
            let result = match (read.result(), wait) {
                (Some(result), _) => result,
                (None, Blocking::Yes) => read.wait(),
                (None, Blocking::No) => {
                    // The kernel may set the event of the read before after that one's result was seen, and this one had begun:
                    // a waiter would find it set, and nothing, again and again.
                    self.event.lower();
                    match read.result() {
                        // It completed before that.
                        Some(result) => {
                            self.event.raise();
                            result
                        }
                        None => return Ok(ReadResult::Nothing),
                    }
                }
            };
            self.running = None;
            match map_read_result(self.file.as_handle(), result) {
                Some(Ok(0)) => {
                    self.has_ended = true;
                    self.event.raise();
                }
                Some(Ok(count)) => {
                    // SAFETY: the operation has filled that many bytes behind the length, which was 0.
                    unsafe { self.buffer.set_len(count) };
                    return Ok(ReadResult::Bytes);
                }
                Some(Err(error)) => {
                    self.event.raise();
                    return Err(error);
                }
                // The thread that started the read has ended, which cancelled it; or the other side wrote 0
                // bytes.
                None if wait == Blocking::No => {
                    self.go_on();
                    return Ok(ReadResult::Nothing);
                }
                None => {}
            }
        }
    }

    /// Returns true if the file cannot be read at all.
    pub(super) fn is_refused(&self) -> bool {
        let result = self.running.as_ref().and_then(OverlappedIo::result);
        let what = result.and_then(|result| map_read_result(self.file.as_handle(), result));
        matches!(what, Some(Err(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, pair};
    use crate::base::wake::is_signalled;

    #[test]
    fn a_late_event_of_an_earlier_read_wakes_a_waiter_once() {
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        let mut reads = ChannelReader::new(Arc::new(OwnedHandle::from(reader))).unwrap();
        assert_eq!(reads.finish(Blocking::No).unwrap(), ReadResult::Nothing);
        // As the kernel does, for the read before.
        reads.event.raise();
        assert_eq!(reads.finish(Blocking::No).unwrap(), ReadResult::Nothing);
        assert!(!is_signalled(reads.event()));
        assert_eq!(writer.try_write(b"x").unwrap(), 1);
        assert_eq!(reads.finish(Blocking::Yes).unwrap(), ReadResult::Bytes);
        assert_eq!(reads.bytes(), b"x");
    }
}
