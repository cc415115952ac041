//! Reads and writes past the cache that the kernel carries out meanwhile: the older calls of Linux.
//!
//! They are allowed in many containers where io_uring is not. What is not direct, or has to find room on the
//! disk first, they do inside the call that hands it over.

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

/// A queue of operations in the kernel.
///
/// # Drop
/// Waits for what is under way.
#[derive(Debug)]
pub struct Aio(imp::Aio);

impl Aio {
    /// Makes a queue. The flag ends its waits.
    ///
    /// # Platform
    /// Linux: `io_setup`. Elsewhere there is none.
    ///
    /// # Errors
    /// Why there can be none.
    #[doc(alias = "io_setup")]
    pub fn new(depth: usize, wake: Option<Arc<Wake>>) -> Result<Aio, UnavailableReason> {
        imp::Aio::new(depth, wake).map(Aio)
    }

    /// Takes a read or a write, to be handed over by the next [`submit`](Aio::submit) or wait.
    ///
    /// # Errors
    /// The request, where its token cannot be had or it is neither.
    pub fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.0.push(token, request)
    }

    /// Hands over what was pushed.
    ///
    /// # Errors
    /// What the system says; what was not handed over stays pushed.
    #[doc(alias = "io_submit")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Hands over what was pushed and waits until something is done, or the flag was raised that the queue
    /// was made with; it is lowered then. Without a flag it does not wait where nothing is under way.
    ///
    /// # Errors
    /// As [`Aio::submit`], and those of `poll`.
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// One operation that is done, if one is.
    pub fn take(&mut self) -> Option<Finished> {
        self.0.take()
    }
}
