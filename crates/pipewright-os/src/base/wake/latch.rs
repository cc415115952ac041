//! A flag that is raised once, also by a signal handler.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::Wake;

/// A flag that is raised once, for good. Its [`Wake`] is made by the first wait for it.
///
/// [`raise`](Self::raise) and [`nudge`](Self::nudge) neither lock nor allocate, so that a signal
/// handler may call them.
#[derive(Debug, Default)]
pub struct Latch {
    is_up: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Latch {
    /// Raises the flag, and wakes everyone who waits.
    pub fn raise(&self) {
        self.is_up.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Returns true once the flag has been raised.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Wakes everyone who waits, without raising the flag.
    pub fn nudge(&self) {
        // With its twin in `wake`: either this sees the wake in place, or its maker sees the flag.
        fence(Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.raise();
        }
    }

    /// Returns the wake, if somebody waits or has waited.
    #[must_use]
    pub fn made(&self) -> Option<&Wake> {
        self.wake.get()
    }

    /// Returns what to wait for. The caller looks at the flag afterwards: what was raised before the
    /// wake was made has not raised it.
    ///
    /// # Errors
    /// No room for another handle.
    pub fn wake(&self) -> io::Result<&Wake> {
        if self.wake.get().is_none() {
            // Ignored: another thread was faster, and its wake serves as well.
            let _ = self.wake.set(Wake::new()?);
        }
        let wake = self.wake.get().ok_or(io::ErrorKind::NotFound)?;
        fence(Ordering::SeqCst);
        Ok(wake)
    }
}
