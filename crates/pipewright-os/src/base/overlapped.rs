//! One overlapped operation: started, looked at, cancelled, and never left to the kernel.

use std::io;
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_IO_INCOMPLETE, ERROR_IO_PENDING, ERROR_MORE_DATA, ERROR_OPERATION_ABORTED, GetLastError,
    HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::ReadFile;
use windows_sys::Win32::System::IO::{
    CancelIoEx, GetOverlappedResult, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0,
};
use windows_sys::Win32::System::Threading::{INFINITE, ResetEvent, WaitForSingleObject};
use windows_sys::core::BOOL;

use std::os::windows::io::{AsHandle, AsRawHandle};

use crate::base::errno::os_error;
use crate::base::lasting::Write;
use crate::base::wake::Wake;

/// A read or a write that the kernel may be carrying out.
///
/// Several may share one event, which is raised when any of them is done and lowered when one is
/// started: so each is asked itself, after the event has been lowered.
///
/// Any thread may have it. Where the one that started it ends, the system cancels it. A read is then
/// started again. A write that may still wait then is not: some of it may have been read, so it is started
/// on a thread that never ends ([`write_to_last`](Self::write_to_last)).
///
/// # Drop
/// Cancels it and waits until the kernel has let go.
#[derive(Debug)]
pub(crate) struct Operation {
    file: HANDLE,
    event: HANDLE,
    /// In a place of its own, to which the kernel writes; behind a pointer, so that moving this
    /// claims nothing of it.
    overlapped: *mut OVERLAPPED,
    /// It could not be started.
    refused: Option<u32>,
}

// SAFETY: the handles and the struct are the process's, and whoever has this has them to itself.
unsafe impl Send for Operation {}
// SAFETY: what takes `&self` only looks, or cancels, which any thread may do at any time.
unsafe impl Sync for Operation {}

impl Operation {
    /// Starts a read of at most so many bytes.
    ///
    /// # Safety
    /// Until the operation is done or dropped the file and the event stay open, and the memory is
    /// there for that many bytes and nobody's else.
    pub(crate) unsafe fn read(file: HANDLE, event: &Wake, to: *mut u8, room: usize) -> Operation {
        // SAFETY: promised by the caller.
        unsafe { Operation::read_at(file, event, to, room, 0) }
    }

    /// As [`Operation::read`], from that place of a file that has places.
    ///
    /// # Safety
    /// As for [`Operation::read`].
    pub(crate) unsafe fn read_at(
        file: HANDLE,
        event: &Wake,
        to: *mut u8,
        room: usize,
        offset: u64,
    ) -> Operation {
        let mut new = Operation::new(file, event, offset);
        // SAFETY: promised by the caller; the other struct is the operation's own.
        let started = unsafe { ReadFile(file, to, at_most(room), ptr::null_mut(), new.overlapped) };
        new.note_start(started);
        new
    }

    /// Starts a write of so many bytes.
    ///
    /// # Safety
    /// Until the operation is done or dropped the file and the event stay open, and the memory is
    /// there and does not change.
    pub(crate) unsafe fn write(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
    ) -> Operation {
        // SAFETY: promised by the caller.
        unsafe { Operation::write_at(file, event, from, count, 0) }
    }

    /// As [`Operation::write`], to that place of a file that has places.
    ///
    /// # Safety
    /// As for [`Operation::write`].
    pub(crate) unsafe fn write_at(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
        offset: u64,
    ) -> Operation {
        let mut new = Operation::new(file, event, offset);
        let write = Write { file, from, count: at_most(count), overlapped: new.overlapped };
        // SAFETY: promised by the caller; the struct is the operation's own.
        let refused = unsafe { write.start() };
        new.note(refused);
        new
    }

    /// As [`Operation::write`], to a pipe that has so much room. The end of the calling thread does not end
    /// the write, also where it has to wait; unless somebody else takes that room first, or there is no room
    /// for the thread that never ends. Then the write ends with an error.
    ///
    /// # Safety
    /// As for [`Operation::write`].
    pub(crate) unsafe fn write_to_last(
        file: HANDLE,
        event: &Wake,
        from: *const u8,
        count: usize,
        room: Option<usize>,
    ) -> Operation {
        let mut new = Operation::new(file, event, 0);
        let write = Write { file, from, count: at_most(count), overlapped: new.overlapped };
        let refused = if room.is_some_and(|room| room >= count) {
            // SAFETY: promised by the caller; the struct is the operation's own.
            unsafe { write.start() }
        } else {
            // SAFETY: as above.
            unsafe { write.start_to_last() }
        };
        new.note(refused);
        new
    }

    fn new(file: HANDLE, event: &Wake, offset: u64) -> Operation {
        let event = event.as_handle().as_raw_handle();
        // With its lowest bit, which is no part of a handle: the end is told to this event and to no
        // completion port. A runtime may have given one to the same open file, of which this is
        // another handle, and would take our struct for the beginning of one of its own.
        let told = event.map_addr(|address| address | 1);
        let overlapped = Box::into_raw(Box::new(at(offset, told)));
        Operation { file, event, overlapped, refused: None }
    }

    fn note_start(&mut self, started: BOOL) {
        // SAFETY: no arguments.
        self.note((started == 0).then(|| unsafe { GetLastError() }));
    }

    /// Notes the error of the call that started it.
    fn note(&mut self, error: Option<u32>) {
        match error {
            // Of a message there is more than room: what there was room for has come.
            None | Some(ERROR_IO_PENDING | ERROR_MORE_DATA) => {}
            refused => self.refused = refused,
        }
    }

    /// How many bytes it moved; `None`: it is not done.
    pub(crate) fn result(&self) -> Option<io::Result<usize>> {
        if let Some(error) = self.refused {
            return Some(Err(os_error(error)));
        }
        let mut count = 0;
        // SAFETY: a started operation of this file, which is open, and a live number.
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

    /// Waits until it is done.
    pub(crate) fn wait(&mut self) -> io::Result<usize> {
        loop {
            // Ignored, here and below: an event that is open has no error. SAFETY: it is open.
            let _ = unsafe { ResetEvent(self.event) };
            if let Some(result) = self.result() {
                return result;
            }
            // SAFETY: as above.
            let _ = unsafe { WaitForSingleObject(self.event, INFINITE) };
        }
    }

    /// Cancels it, if it is not done, and waits until it is. `None`: it was cancelled.
    ///
    /// One that is done before the cancel reaches it counts: its bytes have been moved. A read that was
    /// cancelled has taken nothing. Of a write that was cancelled some may have been read: it must not be
    /// sent again.
    pub(crate) fn stop(&mut self) -> Option<io::Result<usize>> {
        if self.result().is_none() {
            self.cancel();
        }
        self.wait_for_cancel()
    }

    fn cancel(&self) {
        // Ignored: it has been done since. SAFETY: a started operation of this file.
        let _ = unsafe { CancelIoEx(self.file, self.overlapped) };
    }

    fn wait_for_cancel(&mut self) -> Option<io::Result<usize>> {
        Some(self.wait()).filter(|result| !is_cancelled(result))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // What it has moved is lost, unless somebody asked before.
        let _ = self.stop();
        // SAFETY: made by `new`, and the kernel has let go.
        drop(unsafe { Box::from_raw(self.overlapped) });
    }
}

/// The struct of an operation at that place of a file, whose end is told to that event.
pub(crate) fn at(offset: u64, event: HANDLE) -> OVERLAPPED {
    let place = OVERLAPPED_0_0 { Offset: offset as u32, OffsetHigh: (offset >> 32) as u32 };
    let place = OVERLAPPED_0 { Anonymous: place };
    OVERLAPPED { Anonymous: place, hEvent: event, ..Default::default() }
}

fn is_cancelled(result: &io::Result<usize>) -> bool {
    let cancelled = Some(ERROR_OPERATION_ABORTED as i32);
    matches!(result, Err(error) if error.raw_os_error() == cancelled)
}

/// A read or write of more is one of as much as fits the call.
pub(crate) fn at_most(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::windows::io::{FromRawHandle, OwnedHandle};

    use windows_sys::Win32::System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus};

    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, pair};

    #[test]
    fn what_was_done_before_the_cancel_counts_and_nothing_else_does() {
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        let (event, mut room) = (Wake::new().unwrap(), [0; 8]);
        for round in 0..100 {
            let (file, to) = (reader.as_raw_handle(), room.as_mut_ptr());
            // SAFETY: stopped before the buffer is touched again.
            let mut read = unsafe { Operation::read(file, &event, to, 8) };
            assert!(read.result().is_none());
            if round % 2 == 0 {
                assert!(read.stop().is_none());
                continue;
            }
            // After somebody has looked, and before the cancel.
            io::Write::write_all(&mut &writer, b"bytes").unwrap();
            read.cancel();
            assert_eq!(read.wait_for_cancel().unwrap().unwrap(), 5);
            assert_eq!(room[..5], *b"bytes");
        }
        assert_eq!(reader.available().unwrap(), 0);
    }

    #[test]
    fn a_completion_port_of_somebody_else_is_told_of_nothing() {
        let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: None };
        let (reader, writer) = pair(options).unwrap();
        let mut port = ptr::null_mut();
        for end in [reader.as_raw_handle(), writer.as_raw_handle()] {
            // SAFETY: an open file; no port the first time, that one the second.
            port = unsafe { CreateIoCompletionPort(end, port, 7, 1) };
            assert!(!port.is_null(), "{}", io::Error::last_os_error());
        }
        // SAFETY: made above, for nobody else.
        let port = unsafe { OwnedHandle::from_raw_handle(port) };
        let (event, mut room) = (Wake::new().unwrap(), [0; 8]);
        for given_up in [true, false] {
            let (file, to) = (reader.as_raw_handle(), room.as_mut_ptr());
            // SAFETY: stopped, or waited for, before the buffer is touched again.
            let mut read = unsafe { Operation::read(file, &event, to, 8) };
            if given_up {
                assert!(read.stop().is_none());
            } else {
                io::Write::write_all(&mut &writer, b"bytes").unwrap();
                assert_eq!(read.wait().unwrap(), 5);
            }
        }
        let (mut count, mut key, mut told) = (0, 0, ptr::null_mut());
        // SAFETY: an open port and three live places.
        let any = unsafe {
            let port = port.as_raw_handle();
            GetQueuedCompletionStatus(port, &raw mut count, &raw mut key, &raw mut told, 0)
        };
        assert!(any == 0 && told.is_null(), "{count} bytes, key {key}");
    }
}
