//! Operations on files that the kernel carries out meanwhile: io_uring.
//!
//! Whatever the kernel may read or write is owned by the ring from [`Ring::push`] until the kernel has
//! said that it is done, so that no caller can take it away too early.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
use crate::disk::absent as imp;
#[cfg(target_os = "linux")]
use linux as imp;

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{Finished, Request};
use crate::disk::unavailable::UnavailableReason;

/// What a ring is to be.
#[derive(Debug, Clone, Copy)]
pub struct RingOptions {
    /// How many operations can be under way at once.
    pub depth: usize,
    /// How many threads the kernel may start for what it cannot do without waiting; `None`: its own limit
    /// for files, 4 for each processor.
    pub workers: Option<u32>,
}

/// A ring, which belongs to the thread that made it.
///
/// # Drop
/// What the kernel has not begun is cancelled. Waits for the rest.
#[derive(Debug)]
pub struct Ring(imp::Ring);

impl Ring {
    /// Makes a ring and has it do nothing once, to see that it works. The flag ends its waits.
    ///
    /// # Platform
    /// Linux 5.6 and later: `io_uring_setup`, with `SINGLE_ISSUER` and `DEFER_TASKRUN` (6.1), else with
    /// `COOP_TASKRUN` (5.19), else without. `IORING_REGISTER_PROBE` for each operation that it takes,
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS` (5.15). No thread of the kernel polls. Elsewhere there is none.
    ///
    /// # Errors
    /// Why there can be none.
    #[doc(alias = "io_uring_setup")]
    pub fn new(options: RingOptions, wake: Option<Arc<Wake>>) -> Result<Ring, UnavailableReason> {
        imp::Ring::new(options, wake).map(Ring)
    }

    /// Takes an operation, to be handed to the kernel by the next [`submit`](Ring::submit) or wait.
    ///
    /// `token` names it; it is less than the depth and not in use.
    ///
    /// # Errors
    /// The request, where the token cannot be had.
    pub fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.0.push(token, request)
    }

    /// Hands what was pushed to the kernel, and waits for nothing.
    ///
    /// What it can do at once it does in the call; that can be [taken](Ring::take) then. With
    /// `DEFER_TASKRUN` nothing else can: what completes later is seen by a wait.
    ///
    /// # Errors
    /// What the system says; what was not handed over stays pushed.
    #[doc(alias = "io_uring_enter")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Hands over what was pushed and waits until something is done, or the flag was raised that the ring was
    /// made with; it is lowered then. May return before, when a signal came. Without a flag it does not wait
    /// where nothing is under way.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// One operation that is done, if one is.
    pub fn take(&mut self) -> Option<Finished> {
        self.0.take()
    }

    /// Asks the kernel not to begin an operation that it has not begun. It is done in any case, with
    /// `ECANCELED` or with what has become of it.
    #[doc(alias = "IORING_OP_ASYNC_CANCEL")]
    pub fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }
}
