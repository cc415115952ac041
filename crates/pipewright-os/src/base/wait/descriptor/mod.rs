//! One descriptor for a whole wait, for an event loop that this crate does not know.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported as imp;

use std::io;
use std::time::Instant;

use super::Slot;

/// A descriptor that becomes readable when a wait for some slots would return.
///
/// An event loop waits for this one descriptor instead of calling [`any`](super::any), which would block its thread.
///
/// # Platform
/// Linux: an `epoll`, with a `timerfd` for the deadlines of [`update`](Self::update). Other systems: `Unsupported`.
///
/// # Drop
/// Closes the descriptor. The loop has to stop waiting for it first.
#[derive(Debug)]
pub struct WaitDescriptor(imp::Descriptor);

impl WaitDescriptor {
    /// Makes a descriptor that waits for nothing.
    ///
    /// # Errors
    /// No more handles are available; `Unsupported` on this system.
    pub fn new() -> io::Result<WaitDescriptor> {
        imp::Descriptor::new().map(WaitDescriptor)
    }

    /// Returns the number of the descriptor. It stays the same until the drop.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }

    /// Sets the slots and the deadline to wait for. Each call passes the same sources at the same indices; a slot that
    /// is done or off is left out.
    ///
    /// # Errors
    /// No more handles are available, or the system has no memory.
    pub fn update(&mut self, slots: &[Slot<'_>], deadline: Option<Instant>) -> io::Result<()> {
        self.0.update(slots, deadline)
    }

    /// Sets the slots to wait for, as [`update`](Self::update) does, without a timer. Returns the time at which the caller
    /// has to stop waiting, which takes no further handle.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn register(
        &mut self,
        slots: &[Slot<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<Option<Instant>> {
        self.0.register(slots, deadline)
    }
}
