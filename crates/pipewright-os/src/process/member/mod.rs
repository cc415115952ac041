//! A process that is held by a handle of its own, so that its number cannot pass to another.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::Arc;

use crate::base::signal::Signal;
use crate::base::wait::Slot;
use crate::base::wake::{EventSource, WaitEvent};

/// A process that need not be a child of this one, held so that its number cannot pass to another.
#[derive(Debug, Clone)]
pub struct Member(pub(crate) Arc<imp::Member>);

impl WaitEvent for Member {
    fn source(&self) -> EventSource<'_> {
        imp::source(self)
    }

    fn has_happened(&self) -> bool {
        !self.is_alive()
    }
}

impl Member {
    /// Returns a slot that waits for the end of the process, and that keeps its number from passing to
    /// another meanwhile.
    #[must_use]
    pub fn to_slot(&self) -> Slot<'static> {
        Slot::Owned(Arc::new(self.clone()))
    }

    /// Returns the process id, for people to read.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends a signal. Returns false if the process is gone; then nothing was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, if `NOTE_EXIT` has not come and the start time is
    /// unchanged. No call does both at once: another process is signalled if this one ends, is reaped and
    /// its number is given out again in between. Windows: `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// Returns its process group; `None` if it is gone, and on Windows, which does not report it.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.0.group()
    }

    /// Returns true if it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Returns true if it cannot start a process now, because it is stopped or has ended.
    pub(crate) fn is_stopped_or_ended(&self) -> bool {
        self.0.is_stopped_or_ended()
    }
}
