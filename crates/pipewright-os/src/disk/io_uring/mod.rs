//! Asynchronous file operations by io_uring.
//!
//! The ring owns everything that the kernel may read or write from [`Uring::push`] until the kernel has
//! completed it, so that no caller can free it too early.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
use crate::disk::absent as imp;
#[cfg(target_os = "linux")]
use linux as imp;

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::unavailable::UnavailableReason;

/// The options of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingOptions {
    /// The maximum number of operations in flight.
    pub depth: usize,
    /// The maximum number of kernel threads for operations that block. `None`: the kernel's limit for files, 4
    /// per processor.
    pub workers: Option<u32>,
}

/// A ring. It belongs to the thread that created it.
///
/// # Drop
/// Cancels what the kernel has not started and waits for the rest.
#[derive(Debug)]
pub struct Uring(imp::Uring);

impl Uring {
    /// Creates a ring and submits an empty operation to check that it works. Raising the flag interrupts its
    /// waits.
    ///
    /// # Platform
    /// Linux 5.6 and later: `io_uring_setup` with `SINGLE_ISSUER` and `DEFER_TASKRUN` (6.1), or with
    /// `SINGLE_ISSUER` and `COOP_TASKRUN` (6.0), or with `COOP_TASKRUN` alone (5.19), or without; `IORING_REGISTER_PROBE` to check each operation;
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS` (5.15). No kernel thread polls. Not available elsewhere.
    ///
    /// # Errors
    /// The reason why io_uring is unavailable.
    #[doc(alias = "io_uring_setup")]
    pub fn new(options: RingOptions, wake: Option<Arc<Wake>>) -> Result<Uring, UnavailableReason> {
        imp::Uring::new(options, wake).map(Uring)
    }

    /// Pushes an operation. The next [`submit`](Uring::submit) or wait submits it to the kernel.
    ///
    /// `token` identifies it. It must be less than the depth and not in use.
    ///
    /// # Errors
    /// The request, if the token is invalid or in use.
    pub fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    /// Submits the pushed operations to the kernel. Doesn't wait.
    ///
    /// Operations that can complete at once do so in the call and can be [taken](Uring::take) afterwards. With
    /// `DEFER_TASKRUN`, no other operation is complete then: later completions need a wait.
    ///
    /// # Errors
    /// The system's error. Operations that were not submitted stay pushed.
    #[doc(alias = "io_uring_enter")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Submits the pushed operations and waits until one is complete, or until the ring's flag is raised,
    /// which lowers it. A signal can end the wait early. Without a flag it returns at once if nothing is in
    /// flight.
    ///
    /// # Errors
    /// As for [`Uring::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// Takes a completed operation, if there is one.
    pub fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }

    /// Asks the kernel to cancel an operation that it has not started. The operation completes in any case,
    /// with `ECANCELED` or with its own result.
    #[doc(alias = "IORING_OP_ASYNC_CANCEL")]
    pub fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }
}
