//! Asynchronous reads and writes by overlapped calls and a completion port.

#[cfg(not(windows))]
use crate::disk::unavailable as imp;

use std::io;

use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::unavailable::UnavailableReason;

/// The status returned by the submitting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// The operation is done.
    Done,
    /// The call reported a pending operation, which was done when the call returned.
    PendingButDone,
    /// The operation is pending.
    Pending,
}

/// A queue of operations in the kernel.
///
/// # Drop
/// Cancels the operations in flight, where the system can, and waits for them.
#[derive(Debug)]
pub struct CompletionPort(imp::CompletionPort);

impl CompletionPort {
    /// Creates a queue.
    ///
    /// # Platform
    /// Windows: `CreateIoCompletionPort`. Not available elsewhere.
    ///
    /// # Errors
    /// The reason why completion ports are unavailable.
    #[doc(alias = "CreateIoCompletionPort")]
    pub fn new(depth: usize) -> Result<CompletionPort, UnavailableReason> {
        imp::CompletionPort::new(depth, None).map(CompletionPort)
    }

    /// Pushes a read or a write. The next [`submit`](CompletionPort::submit) or wait submits it.
    ///
    /// # Errors
    /// The request, if its token is invalid or in use, or if it is neither a read nor a write.
    pub fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    /// Submits the pushed operations.
    ///
    /// # Errors
    /// `WouldBlock`: the system has no resources for more until some operations complete. Operations that were
    /// not submitted stay pushed.
    #[doc(alias = "ReadFile")]
    #[doc(alias = "WriteFile")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Returns the status of the call that submitted the request with that token.
    #[must_use]
    pub fn call_status(&self, token: usize) -> CallStatus {
        self.0.call_status(token)
    }

    /// Submits the pushed operations and waits until one is complete or another thread interrupts the wait.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "GetQueuedCompletionStatusEx")]
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// Takes a completed operation, if there is one.
    pub fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }

    /// Cancels an operation, where the system can. It completes in any case.
    #[doc(alias = "CancelIoEx")]
    pub fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }

    /// Returns a function that interrupts the current or next wait from another thread.
    #[doc(alias = "PostQueuedCompletionStatus")]
    pub fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        self.0.waker()
    }
}

// `ReadFile`, `WriteFile`, `GetQueuedCompletionStatusEx`, `CancelIoEx`.
#[cfg(windows)]
mod imp {
    use std::collections::VecDeque;
    use std::io;
    use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
    use std::ptr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use windows_sys::Win32::Foundation::{
        ERROR_HANDLE_EOF, ERROR_INVALID_USER_BUFFER, ERROR_IO_PENDING, ERROR_NO_SYSTEM_RESOURCES,
        ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_ENOUGH_QUOTA, ERROR_WORKING_SET_QUOTA, GetLastError,
        HANDLE, INVALID_HANDLE_VALUE, STATUS_PENDING, WAIT_TIMEOUT,
    };
    use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
    use windows_sys::Win32::System::IO::{
        CancelIoEx, CreateIoCompletionPort, GetOverlappedResult, GetQueuedCompletionStatusEx,
        OVERLAPPED, OVERLAPPED_ENTRY, PostQueuedCompletionStatus,
    };
    use windows_sys::Win32::System::Threading::INFINITE;

    use super::CallStatus;
    use crate::base::error::{self, os_error};
    use crate::base::overlapped::overlapped_at;
    use crate::base::wake::Wake;
    use crate::disk::file::{Action, FileRequest, FinishedRequest, InFlight};
    use crate::disk::unavailable::UnavailableReason;

    #[derive(Debug)]
    pub(crate) struct CompletionPort {
        port: Arc<OwnedHandle>,
        /// The requests, which own what the kernel may touch.
        requests: InFlight,
        /// The overlapped block of each request, by token. The kernel writes to it, so it is kept as a raw
        /// pointer: moving this struct must not claim it.
        blocks: *mut [OVERLAPPED],
        /// The call of each request, by token.
        calls: Vec<SubmittedCall>,
        /// The tokens of requests that have not been submitted.
        unsubmitted: VecDeque<usize>,
        done: VecDeque<(usize, io::Result<usize>)>,
        /// The number of requests in the kernel.
        in_flight: usize,
        /// True if the next wait was interrupted.
        woken: Arc<AtomicBool>,
    }

    /// A call that submitted a request.
    #[derive(Debug, Clone, Copy)]
    struct SubmittedCall {
        file: HANDLE,
        status: CallStatus,
        /// True if the kernel will post the completion.
        is_in_flight: bool,
    }

    impl CompletionPort {
        pub(crate) fn new(
            depth: usize,
            _: Option<Arc<Wake>>,
        ) -> Result<CompletionPort, UnavailableReason> {
            // No limit on threads is needed, because only this one fetches completions. SAFETY: no file, and no
            // existing port.
            let port =
                unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 0) };
            if port.is_null() {
                let number = io::Error::last_os_error().raw_os_error().unwrap_or_default();
                return Err(UnavailableReason::Error { number });
            }
            // SAFETY: created by the call above, and owned by nobody else.
            let port = unsafe { OwnedHandle::from_raw_handle(port) };
            let none = SubmittedCall {
                file: ptr::null_mut(),
                status: CallStatus::Pending,
                is_in_flight: false,
            };
            Ok(CompletionPort {
                port: Arc::new(port),
                requests: InFlight::new(depth),
                blocks: Box::into_raw(vec![OVERLAPPED::default(); depth].into_boxed_slice()),
                calls: vec![none; depth],
                unsubmitted: VecDeque::new(),
                done: VecDeque::new(),
                in_flight: 0,
                woken: Arc::new(AtomicBool::new(false)),
            })
        }

        pub(crate) fn push(
            &mut self,
            token: usize,
            request: FileRequest,
        ) -> Result<(), FileRequest> {
            self.requests.put_transfer(token, request)?;
            self.unsubmitted.push_back(token);
            Ok(())
        }

        pub(crate) fn submit(&mut self) -> io::Result<()> {
            while let Some(token) = self.unsubmitted.front().copied() {
                match self.submit_one(token) {
                    Ok(()) => {}
                    Err(error) if self.in_flight > 0 && is_out_of_resources(&error) => {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    Err(error) => self.done.push_back((token, zero_at_end_of_file(error))),
                }
                self.unsubmitted.pop_front();
            }
            Ok(())
        }

        fn block(&self, token: usize) -> *mut OVERLAPPED {
            // Inside the slice: tokens are less than the depth.
            self.blocks.cast::<OVERLAPPED>().wrapping_add(token)
        }

        /// Makes the call and records its status.
        fn submit_one(&mut self, token: usize) -> io::Result<()> {
            let Some(request) = self.requests.get(token) else { return Ok(()) };
            let (file, posts_inline) = request.file.overlapped(&self.port)?;
            let start = request.buffer.start().as_ptr().wrapping_add(request.from);
            // At most 0x7ffff000.
            let (bytes, mut moved) = (request.left() as u32, 0);
            let block = self.block(token);
            // SAFETY: inside the slice. The token was free, so the kernel does not use the block.
            unsafe { block.write(overlapped_at(request.offset, ptr::null_mut())) };
            let started = if request.action == Action::Read {
                // SAFETY: the file is open, and the memory is valid and used by nobody else, until the kernel has
                // posted the completion: the request owns both and is kept until then, even if this is dropped. So
                // is the block.
                unsafe { ReadFile(file, start, bytes, &raw mut moved, block) }
            } else {
                // SAFETY: as above, and the memory is only read.
                unsafe { WriteFile(file, start, bytes, &raw mut moved, block) }
            };
            let (status, is_in_flight) = if started != 0 {
                // Done. Nothing is posted, unless the file could not be set to skip that.
                (CallStatus::Done, posts_inline)
            } else {
                // SAFETY: no arguments.
                match unsafe { GetLastError() } {
                    // The status is the first field. SAFETY: inside the slice; the kernel may write to it
                    // meanwhile.
                    ERROR_IO_PENDING => match unsafe { block.cast::<usize>().read_volatile() } {
                        status if status == STATUS_PENDING as usize => (CallStatus::Pending, true),
                        _ => (CallStatus::PendingButDone, true),
                    },
                    // For a call that failed at once, nothing is posted and nothing is written to the block.
                    error => return Err(os_error(error)),
                }
            };
            if let Some(call) = self.calls.get_mut(token) {
                *call = SubmittedCall { file, status, is_in_flight };
            }
            if is_in_flight {
                self.in_flight += 1;
            } else {
                // For an inline completion, the call itself returns the number of bytes.
                self.done.push_back((token, Ok(moved as usize)));
            }
            Ok(())
        }

        pub(crate) fn call_status(&self, token: usize) -> CallStatus {
            self.calls.get(token).map_or(CallStatus::Pending, |call| call.status)
        }

        pub(crate) fn wait(&mut self) -> io::Result<()> {
            // Ignored: a full queue is a reason to wait, not an error.
            let _ = self.submit();
            if self.done.is_empty() { self.collect(INFINITE) } else { Ok(()) }
        }

        /// Collects posted completions, after waiting for one.
        fn collect(&mut self, milliseconds: u32) -> io::Result<()> {
            const AT_ONCE: usize = 64;
            let mut entries = [OVERLAPPED_ENTRY::default(); AT_ONCE];
            let mut count = 0;
            // SAFETY: an open port, space for the named number of entries, and a live number.
            let got = unsafe {
                GetQueuedCompletionStatusEx(
                    self.port.as_raw_handle(),
                    entries.as_mut_ptr(),
                    AT_ONCE as u32,
                    &raw mut count,
                    milliseconds,
                    0,
                )
            };
            if got == 0 {
                // SAFETY: no arguments.
                return match unsafe { GetLastError() } {
                    WAIT_TIMEOUT => Ok(()),
                    error => Err(os_error(error)),
                };
            }
            for entry in entries.iter().take(count as usize) {
                if entry.lpOverlapped.is_null() {
                    self.woken.store(false, Ordering::SeqCst);
                } else {
                    self.record_completion(entry.lpOverlapped);
                }
            }
            Ok(())
        }

        /// Records a completion from its block, which the kernel has released.
        fn record_completion(&mut self, block: *mut OVERLAPPED) {
            let start = self.blocks.cast::<OVERLAPPED>().addr();
            let token = block.addr().wrapping_sub(start) / size_of::<OVERLAPPED>();
            let Some(call) = self.calls.get_mut(token).filter(|call| call.is_in_flight) else {
                return;
            };
            call.is_in_flight = false;
            let mut moved = 0;
            // SAFETY: an operation on that file, which its request keeps open, and a live number.
            let done = unsafe { GetOverlappedResult(call.file, block, &raw mut moved, 0) };
            let result = if done != 0 {
                Ok(moved as usize)
            } else {
                zero_at_end_of_file(io::Error::last_os_error())
            };
            self.in_flight -= 1;
            self.done.push_back((token, result));
        }

        pub(crate) fn take(&mut self) -> Option<FinishedRequest> {
            loop {
                if self.done.is_empty() && self.in_flight > 0 {
                    // Ignored: the next wait reports it.
                    let _ = self.collect(0);
                }
                let (token, result) = self.done.pop_front()?;
                if let Some(request) = self.requests.take(token) {
                    return Some(FinishedRequest { token, request, result, ran: true });
                }
            }
        }

        pub(crate) fn cancel(&mut self, token: usize) {
            if let Some(place) =
                self.unsubmitted.iter().position(|unsubmitted| *unsubmitted == token)
            {
                self.unsubmitted.remove(place);
                self.done.push_back((token, Err(error::cancelled())));
            } else if let Some(call) = self.calls.get(token).filter(|call| call.is_in_flight) {
                // Ignored: the operation is done or cannot be cancelled, and its completion is posted in any case.
                // SAFETY: an operation on that file.
                let _ = unsafe { CancelIoEx(call.file, self.block(token)) };
            }
        }

        pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + use<> {
            let (port, woken) = (Arc::clone(&self.port), Arc::clone(&self.woken));
            move || {
                if woken.swap(true, Ordering::SeqCst) {
                    return;
                }
                // SAFETY: an open port, and no block.
                let posted =
                    unsafe { PostQueuedCompletionStatus(port.as_raw_handle(), 0, 0, ptr::null()) };
                if posted == 0 {
                    woken.store(false, Ordering::SeqCst);
                }
            }
        }
    }

    /// Returns true if the system has no resources for more requests in flight (ReadFile).
    fn is_out_of_resources(error: &io::Error) -> bool {
        matches!(
            error.raw_os_error().map(|number| number as u32),
            Some(
                ERROR_INVALID_USER_BUFFER
                    | ERROR_NOT_ENOUGH_MEMORY
                    | ERROR_NOT_ENOUGH_QUOTA
                    | ERROR_WORKING_SET_QUOTA
                    | ERROR_NO_SYSTEM_RESOURCES
            )
        )
    }

    fn zero_at_end_of_file(error: io::Error) -> io::Result<usize> {
        if error.raw_os_error() == Some(ERROR_HANDLE_EOF as i32) { Ok(0) } else { Err(error) }
    }

    impl Drop for CompletionPort {
        fn drop(&mut self) {
            // These were never submitted.
            for token in std::mem::take(&mut self.unsubmitted) {
                drop(self.requests.take(token));
            }
            for token in 0..self.calls.len() {
                self.cancel(token);
            }
            while self.in_flight > 0 {
                if self.collect(INFINITE).is_err() {
                    // Their completions can no longer be read, so leave their memory to the kernel forever.
                    self.requests.leak();
                    return;
                }
            }
            // SAFETY: created by `new`, and released by the kernel.
            drop(unsafe { Box::from_raw(self.blocks) });
        }
    }
}
