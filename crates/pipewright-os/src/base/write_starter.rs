//! A thread that never ends, which starts writes that must outlive the thread that requests them.
//!
//! Windows cancels the pending I/O of a thread when that thread ends, and does not report how much
//! of a write had been read by then.

use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::Foundation::{GetLastError, HANDLE};
use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::IO::OVERLAPPED;

use crate::base::service_thread;

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
