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

use crate::base::event::{Event, Source};
use crate::base::signal::Signal;
use crate::base::wait::Slot;

/// A process that is not our child, held so that its number cannot pass to another.
#[derive(Debug, Clone)]
pub struct Member(pub(crate) Arc<imp::Member>);

impl Event for Member {
    fn source(&self) -> Source<'_> {
        imp::source(self)
    }

    fn has_happened(&self) -> bool {
        !self.is_alive()
    }
}

impl Member {
    /// Returns a slot that waits for the end of the process and keeps its number from passing to another one meanwhile.
    #[must_use]
    pub fn to_slot(&self) -> Slot<'static> {
        Slot::Owned(Arc::new(self.clone()))
    }

    /// The process id, for people to read.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends a signal. `false`: the process is gone, and nobody was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, if `NOTE_EXIT` has not come and the time of the
    /// start is still the one it was. No call makes these one: another process is signalled if this
    /// one ends, is reaped and its number comes round again between the two. Windows:
    /// `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but
    /// `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// The process group it is in; `None` where it is gone, and on Windows, which does not tell.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.0.group()
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Returns true if it starts nobody any more, for now: it is stopped, or has ended.
    pub(crate) fn rests(&self) -> bool {
        self.0.rests()
    }
}
