//! Asynchronous reads and writes by overlapped calls and a completion port.

#[cfg(windows)]
mod windows;
#[cfg(not(windows))]
use crate::disk::absent as imp;
#[cfg(windows)]
use windows as imp;

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
