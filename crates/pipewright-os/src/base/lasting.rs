//! A thread that never ends, to start what must outlive the thread that asks for it.
//!
//! The system cancels what a thread has under way when that thread ends, and does not tell how much of a
//! write had been read by then.

use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::Foundation::{GetLastError, HANDLE};
use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::IO::OVERLAPPED;

use crate::base::service_thread;

/// A write that is to be started.
pub(crate) struct Write {
    pub(crate) file: HANDLE,
    pub(crate) from: *const u8,
    pub(crate) count: u32,
    pub(crate) overlapped: *mut OVERLAPPED,
}

// SAFETY: the handle and the memory are the process's, and the one that made this waits meanwhile.
unsafe impl Send for Write {}

/// The status of the submitting call: `None` is success, else the number of the error.
type Answer = Option<u32>;

/// A write, and where its answer goes.
type Request = (Write, Sender<Answer>);

static THREAD: Mutex<Option<Sender<Request>>> = Mutex::new(None);

impl Write {
    /// Starts the write on the calling thread.
    ///
    /// # Safety
    /// The file is open, the bytes do not change, and the struct stays in its place, until the write is done.
    pub(crate) unsafe fn start(&self) -> Answer {
        // SAFETY: promised by the caller.
        let started = unsafe {
            WriteFile(self.file, self.from, self.count, ptr::null_mut(), self.overlapped)
        };
        // SAFETY: no arguments.
        (started == 0).then(|| unsafe { GetLastError() })
    }

    /// Starts the write on the thread that never ends; on the calling one where there is no room for that.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    pub(crate) unsafe fn start_to_last(self) -> Answer {
        let (answer, answered) = channel();
        match sender() {
            Some(sender) => match sender.send((self, answer)) {
                // The thread answers each. Were it gone, so would be what it had begun: as a cancel.
                Ok(()) => answered.recv().unwrap_or(Some(GONE)),
                // SAFETY: promised by the caller.
                Err(unsent) => unsafe { unsent.0.0.start() },
            },
            // SAFETY: promised by the caller.
            None => unsafe { self.start() },
        }
    }
}

/// Cannot happen; the write counts as cancelled then.
const GONE: u32 = windows_sys::Win32::Foundation::ERROR_OPERATION_ABORTED;

fn sender() -> Option<Sender<Request>> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        let (sender, requests) = channel::<Request>();
        let work = move || {
            for (write, answer) in requests {
                // SAFETY: promised by the caller of `start_to_last`, which waits for the answer.
                let started = unsafe { write.start() };
                // Ignored: it waits.
                let _ = answer.send(started);
            }
        };
        service_thread::start(c"pipewright-writes", work).ok()?;
        *thread = Some(sender);
    }
    thread.clone()
}
