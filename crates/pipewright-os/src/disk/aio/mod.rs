//! Asynchronous direct reads and writes by Linux AIO, the older interface.
//!
//! Many containers that forbid io_uring allow it. Requests that are not direct, or that have to allocate disk
//! space first, are performed inside the submitting call.

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

/// A queue of operations in the kernel.
///
/// # Drop
/// Waits for operations in flight.
#[derive(Debug)]
pub struct Aio(imp::Aio);

impl Aio {
    /// Creates a queue. Raising the flag interrupts its waits.
    ///
    /// # Platform
    /// Linux: `io_setup`. Not available elsewhere.
    ///
    /// # Errors
    /// The reason why Linux AIO is unavailable.
    #[doc(alias = "io_setup")]
    pub fn new(depth: usize, wake: Option<Arc<Wake>>) -> Result<Aio, UnavailableReason> {
        imp::Aio::new(depth, wake).map(Aio)
    }

    /// Pushes a read or a write. The next [`submit`](Aio::submit) or wait submits it.
    ///
    /// # Errors
    /// The request, if its token is invalid or in use, or if it is neither a read nor a write.
    pub fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    /// Submits the pushed operations.
    ///
    /// # Errors
    /// The system's error. Operations that were not submitted stay pushed.
    #[doc(alias = "io_submit")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Submits the pushed operations and waits until one is complete, or until the queue's flag is raised,
    /// which lowers it. Without a flag it returns at once if nothing is in flight.
    ///
    /// # Errors
    /// As for [`Aio::submit`] and `poll`.
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// Takes a completed operation, if there is one.
    pub fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }
}
