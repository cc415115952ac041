//! One overlapped operation: started, checked, cancelled, and never left to the kernel.

use std::os::windows::io::{AsHandle, AsRawHandle};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::{io, ptr};

use windows_sys::Win32::Foundation::{
    ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_MORE_DATA, ERROR_OPERATION_ABORTED, GetLastError,
    HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::IO::{
    CancelIoEx, GetOverlappedResult, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0,
};
use windows_sys::Win32::System::Threading::{INFINITE, ResetEvent, WaitForSingleObject};
use windows_sys::core::BOOL;

use crate::base::error::os_error;
use crate::base::service_thread;
use crate::base::wake::Wake;

/// A read or a write that the kernel may be carrying out.
///
/// Several operations may share one event. The end of any of them sets the event, and the start of
/// one resets it: so reset the event, then check each operation.
///
/// Any thread may own an operation. When the thread that started it ends, the system cancels it. A
/// cancelled read is started again. A cancelled write must not be repeated, as some of it may have
/// been read; so a write that may still be pending then is started on a thread that never ends
/// ([`write_outliving_thread`](Self::write_outliving_thread)).
///
/// # Drop
/// Cancels the operation and waits until the kernel has released the memory.
#[derive(Debug)]
pub(crate) struct OverlappedIo {
    file: HANDLE,
    event: HANDLE,
    /// A separate allocation, to which the kernel writes. A raw pointer, so that moving this value
    /// asserts no unique access to it.
    overlapped: *mut OVERLAPPED,
    /// The error of the submitting call.
    submit_error: Option<u32>,
}

// SAFETY: the handles and the struct belong to the process, and the owner of this value has
// exclusive use of them.
unsafe impl Send for OverlappedIo {}
// SAFETY: methods on `&self` only check or cancel, which any thread may do at any time.
unsafe impl Sync for OverlappedIo {}

impl OverlappedIo {
    /// Starts a read of at most `room` bytes.
    ///
    /// # Safety
    /// Until the operation is done or dropped, the file and the event stay open, and `to` points to
    /// that many bytes of live memory that nothing else uses.
    pub(crate) unsafe fn read(
        file: HANDLE,
        event: &Wake,
        to: *mut u8,
        room: usize,
    ) -> OverlappedIo {
        // SAFETY: promised by the caller.
        unsafe { OverlappedIo::read_at(file, event, to, room, 0) }
    }

    /// Starts a read as [`OverlappedIo::read`] does, at an offset of a seekable file.
    ///
    /// # Safety
    /// As for [`OverlappedIo::read`].
    pub(crate) unsafe fn read_at(
        file: HANDLE,
        event: &Wake,
        to: *mut u8,
        room: usize,
        offset: u64,
    ) -> OverlappedIo {
        let mut new = OverlappedIo::new(file, event, offset);
        // SAFETY: promised by the caller; the operation owns the struct.
        let started =
            unsafe { ReadFile(file, to, clamp_to_u32(room), ptr::null_mut(), new.overlapped) };
        new.record_start(started);
        new
    }

    /// Starts a write of `count` bytes.
    ///
    /// # Safety
    /// Until the operation is done or dropped, the file and the event stay open, and the memory is
    /// live and does not change.
    pub(crate) unsafe fn write(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
    ) -> OverlappedIo {
        // SAFETY: promised by the caller.
        unsafe { OverlappedIo::write_at(file, event, from, count, 0) }
    }

    /// Starts a write as [`OverlappedIo::write`] does, at an offset of a seekable file.
    ///
    /// # Safety
    /// As for [`OverlappedIo::write`].
    pub(crate) unsafe fn write_at(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
        offset: u64,
    ) -> OverlappedIo {
        let mut new = OverlappedIo::new(file, event, offset);
        let write =
            WriteCall { file, from, count: clamp_to_u32(count), overlapped: new.overlapped };
        // SAFETY: promised by the caller; the operation owns the struct.
        let submit_error = unsafe { write.start() };
        new.record_error(submit_error);
        new
    }

    /// Starts a write as [`OverlappedIo::write`] does, to a pipe with that much room. The end of the
    /// calling thread does not cancel the write, even if it has to wait. There are two exceptions,
    /// in which the end of the calling thread makes the write fail: another writer takes that room
    /// first, or the thread that never ends cannot be started.
    ///
    /// # Safety
    /// As for [`OverlappedIo::write`].
    pub(crate) unsafe fn write_outliving_thread(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
        room: Option<usize>,
    ) -> OverlappedIo {
        let mut new = OverlappedIo::new(file, event, 0);
        let write =
            WriteCall { file, from, count: clamp_to_u32(count), overlapped: new.overlapped };
        let submit_error = if room.is_some_and(|room| room >= count) {
            // SAFETY: promised by the caller; the operation owns the struct.
            unsafe { write.start() }
        } else {
            // SAFETY: as above.
            unsafe { write.start_outliving_thread() }
        };
        new.record_error(submit_error);
        new
    }

    fn new(file: HANDLE, event: &Wake, offset: u64) -> OverlappedIo {
        let event = event.as_handle().as_raw_handle();
        // The lowest bit, which is no part of a handle, suppresses the report to a completion port:
        // only the event is set. A runtime may have attached a port to the same open file, of which
        // this is another handle. It would take our struct for one of its own.
        let event_field = event.map_addr(|address| address | 1);
        let overlapped = Box::into_raw(Box::new(overlapped_at(offset, event_field)));
        OverlappedIo { file, event, overlapped, submit_error: None }
    }

    fn record_start(&mut self, started: BOOL) {
        // SAFETY: no arguments.
        self.record_error((started == 0).then(|| unsafe { GetLastError() }));
    }

    /// Records the error of the submitting call.
    fn record_error(&mut self, error: Option<u32>) {
        match error {
            // The message is longer than the buffer: the part that fits has arrived.
            None | Some(ERROR_IO_PENDING | ERROR_MORE_DATA) => {}
            submit_error => self.submit_error = submit_error,
        }
    }

    /// Returns the number of bytes moved; `None` if the operation is not done.
    pub(crate) fn result(&self) -> Option<io::Result<usize>> {
        if let Some(error) = self.submit_error {
            return Some(Err(os_error(error)));
        }
        let mut count = 0;
        // SAFETY: a started operation on this open file, and a live integer.
        let done = unsafe { GetOverlappedResult(self.file, self.overlapped, &raw mut count, 0) };
        if done != 0 {
            return Some(Ok(count as usize));
        }
        // SAFETY: no arguments.
        match unsafe { GetLastError() } {
            ERROR_IO_INCOMPLETE => None,
            ERROR_MORE_DATA => Some(Ok(count as usize)),
            error => Some(Err(os_error(error))),
        }
    }

    /// Waits until the operation is done.
    pub(crate) fn wait(&mut self) -> io::Result<usize> {
        loop {
            // Ignored, here and below: an open event cannot fail. SAFETY: it is open.
            let _ = unsafe { ResetEvent(self.event) };
            if let Some(result) = self.result() {
                return result;
            }
            // SAFETY: as above.
            let _ = unsafe { WaitForSingleObject(self.event, INFINITE) };
        }
    }

    /// Cancels the operation if it is not done, and waits until it is. `None`: it was cancelled.
    ///
    /// An operation that finishes before the cancel reaches it counts: its bytes were moved. A
    /// cancelled read took nothing. A cancelled write may have been read in part, and must not be
    /// repeated.
    pub(crate) fn stop(&mut self) -> Option<io::Result<usize>> {
        if self.result().is_none() {
            self.cancel();
        }
        self.wait_for_cancel()
    }

    fn cancel(&self) {
        // Ignored: it may be done by now. SAFETY: a started operation on this file.
        let _ = unsafe { CancelIoEx(self.file, self.overlapped) };
    }

    fn wait_for_cancel(&mut self) -> Option<io::Result<usize>> {
        Some(self.wait()).filter(|result| !is_cancelled(result))
    }
}

impl Drop for OverlappedIo {
    fn drop(&mut self) {
        // Ignored: the bytes that it moved are lost unless the result was taken before.
        let _ = self.stop();
        // SAFETY: allocated by `new`, and the kernel has released it.
        drop(unsafe { Box::from_raw(self.overlapped) });
    }
}

/// Returns the struct of an operation at that offset of a file, whose end sets that event.
pub(crate) fn overlapped_at(offset: u64, event: HANDLE) -> OVERLAPPED {
    let halves = OVERLAPPED_0_0 { Offset: offset as u32, OffsetHigh: (offset >> 32) as u32 };
    let offset = OVERLAPPED_0 { Anonymous: halves };
    OVERLAPPED { Anonymous: offset, hEvent: event, ..Default::default() }
}

fn is_cancelled(result: &io::Result<usize>) -> bool {
    let cancelled = Some(ERROR_OPERATION_ABORTED as i32);
    matches!(result, Err(error) if error.raw_os_error() == cancelled)
}

/// Limits a count to what one call can take: a longer read or write moves fewer bytes.
pub(crate) fn clamp_to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A write to be started.
pub(crate) struct WriteCall {
    pub(crate) file: HANDLE,
    pub(crate) from: *const u8,
    pub(crate) count: u32,
    pub(crate) overlapped: *mut OVERLAPPED,
}

// SAFETY: the handle and the memory belong to the process, and the sender waits for the reply.
unsafe impl Send for WriteCall {}

/// The outcome of the submitting call: `None` is success, otherwise the error code.
type SubmitError = Option<u32>;

/// A write, and the channel for its outcome.
type StartRequest = (WriteCall, Sender<SubmitError>);

static THREAD: Mutex<Option<Sender<StartRequest>>> = Mutex::new(None);

impl WriteCall {
    /// Starts the write on the calling thread.
    ///
    /// # Safety
    /// Until the write is done the file stays open, the bytes do not change, and the struct does
    /// not move.
    pub(crate) unsafe fn start(&self) -> SubmitError {
        // SAFETY: promised by the caller.
        let started = unsafe {
            WriteFile(self.file, self.from, self.count, ptr::null_mut(), self.overlapped)
        };
        // SAFETY: no arguments.
        (started == 0).then(|| unsafe { GetLastError() })
    }

    /// Starts the write on the thread that never ends, or on the calling one if that thread cannot
    /// be started.
    ///
    /// Windows cancels the pending I/O of a thread when that thread ends, and does not report how much
    /// of a write had been read by then.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    pub(crate) unsafe fn start_outliving_thread(self) -> SubmitError {
        let (reply, receiver) = channel();
        match running_thread() {
            Some(sender) => match sender.send((self, reply)) {
                // The thread answers every request. If it were gone, its pending writes would be
                // cancelled.
                Ok(()) => receiver.recv().unwrap_or(Some(THREAD_GONE)),
                // SAFETY: promised by the caller.
                Err(unsent) => unsafe { unsent.0.0.start() },
            },
            // SAFETY: promised by the caller.
            None => unsafe { self.start() },
        }
    }
}

/// The outcome if the thread is gone, which cannot happen: the write counts as cancelled.
const THREAD_GONE: u32 = windows_sys::Win32::Foundation::ERROR_OPERATION_ABORTED;

/// Returns the channel to the thread, which the first call starts.
fn running_thread() -> Option<Sender<StartRequest>> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        let (sender, requests) = channel::<StartRequest>();
        let work = move || {
            for (write, reply) in requests {
                // SAFETY: promised by the caller of `start_outliving_thread`, which waits for the
                // outcome.
                let error = unsafe { write.start() };
                // Ignored: the receiver is waiting.
                let _ = reply.send(error);
            }
        };
        service_thread::start(c"pipewright-writes", work).ok()?;
        *thread = Some(sender);
    }
    thread.clone()
}

#[cfg(test)]
mod tests {
    use std::os::windows::io::{FromRawHandle, OwnedHandle};

    use windows_sys::Win32::System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus};

    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, pair};

    #[test]
    fn an_operation_done_before_the_cancel_counts_and_no_other_does() {
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        let (event, mut room) = (Wake::new().unwrap(), [0; 8]);
        for round in 0..100 {
            let (file, to) = (reader.as_raw_handle(), room.as_mut_ptr());
            // SAFETY: stopped before the buffer is touched again.
            let mut read = unsafe { OverlappedIo::read(file, &event, to, 8) };
            assert!(read.result().is_none());
            if round % 2 == 0 {
                assert!(read.stop().is_none());
                continue;
            }
            // After the check for a result, and before the cancel.
            io::Write::write_all(&mut &writer, b"bytes").unwrap();
            read.cancel();
            assert_eq!(read.wait_for_cancel().unwrap().unwrap(), 5);
            assert_eq!(room[..5], *b"bytes");
        }
        assert_eq!(reader.available().unwrap(), 0);
    }

    #[test]
    fn a_foreign_completion_port_gets_no_completion() {
        let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: None };
        let (reader, writer) = pair(options).unwrap();
        let mut port = ptr::null_mut();
        for end in [reader.as_raw_handle(), writer.as_raw_handle()] {
            // SAFETY: an open file; no port the first time, that one the second.
            port = unsafe { CreateIoCompletionPort(end, port, 7, 1) };
            assert!(!port.is_null(), "{}", io::Error::last_os_error());
        }
        // SAFETY: made above, and owned by nothing else.
        let port = unsafe { OwnedHandle::from_raw_handle(port) };
        let (event, mut room) = (Wake::new().unwrap(), [0; 8]);
        for cancelled in [true, false] {
            let (file, to) = (reader.as_raw_handle(), room.as_mut_ptr());
            // SAFETY: stopped, or waited for, before the buffer is touched again.
            let mut read = unsafe { OverlappedIo::read(file, &event, to, 8) };
            if cancelled {
                assert!(read.stop().is_none());
            } else {
                io::Write::write_all(&mut &writer, b"bytes").unwrap();
                assert_eq!(read.wait().unwrap(), 5);
            }
        }
        let (mut count, mut key, mut completed) = (0, 0, ptr::null_mut());
        // SAFETY: an open port and three live pointers.
        let any = unsafe {
            let port = port.as_raw_handle();
            GetQueuedCompletionStatus(port, &raw mut count, &raw mut key, &raw mut completed, 0)
        };
        assert!(any == 0 && completed.is_null(), "{count} bytes, key {key}");
    }
}
