//! Reads and writes that the kernel carries out meanwhile: overlapped calls and a completion port.

#[cfg(windows)]
mod windows;
#[cfg(not(windows))]
use crate::disk::absent as imp;
#[cfg(windows)]
use windows as imp;

use std::io;

use crate::disk::file::{Finished, Request};
use crate::disk::unavailable::UnavailableReason;

/// What the call said that handed an operation over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// It is done.
    Done,
    /// It is pending; and yet it was done when the call returned.
    PendingButDone,
    /// It is pending.
    Pending,
}

/// A queue of operations in the kernel.
///
/// # Drop
/// Cancels what is under way, as far as the system does that, and waits for it.
#[derive(Debug)]
pub struct Port(imp::Port);

impl Port {
    /// Makes a queue.
    ///
    /// # Platform
    /// Windows: `CreateIoCompletionPort`. Elsewhere there is none.
    ///
    /// # Errors
    /// Why there can be none.
    #[doc(alias = "CreateIoCompletionPort")]
    pub fn new(depth: usize) -> Result<Port, UnavailableReason> {
        imp::Port::new(depth, None).map(Port)
    }

    /// Takes a read or a write, to be handed over by the next [`submit`](Port::submit) or wait.
    ///
    /// # Errors
    /// The request, where its token cannot be had or it is neither.
    pub fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.0.push(token, request)
    }

    /// Hands over what was pushed.
    ///
    /// # Errors
    /// `WouldBlock`: the system has no room for more before some of those under way are done. What was not
    /// handed over stays pushed.
    #[doc(alias = "ReadFile")]
    #[doc(alias = "WriteFile")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// What the call said that handed over the request of that token.
    #[must_use]
    pub fn call_status(&self, token: usize) -> CallStatus {
        self.0.call_status(token)
    }

    /// Hands over what was pushed and waits until something is done, or somebody ended the wait.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "GetQueuedCompletionStatusEx")]
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// One operation that is done, if one is.
    pub fn take(&mut self) -> Option<Finished> {
        self.0.take()
    }

    /// Prevents an operation, or ends it, where the system does that. It is done in any case.
    #[doc(alias = "CancelIoEx")]
    pub fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }

    /// Ends a wait from elsewhere, the next one included.
    #[doc(alias = "PostQueuedCompletionStatus")]
    pub fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        self.0.waker()
    }
}
