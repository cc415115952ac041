//! A flag that is raised once, also from a signal handler.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use super::Wake;

/// A flag that is raised once and stays raised. The first wait for it makes its [`Wake`].
///
/// [`raise`](Self::raise) and [`notify_all`](Self::notify_all) neither lock nor allocate, so a
/// signal handler may call them.
#[derive(Debug, Default)]
pub struct Latch {
    is_raised: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Latch {
    /// Raises the flag and wakes all waiters.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.notify_all();
    }

    /// Returns true once the flag has been raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Wakes all waiters without raising the flag.
    pub fn notify_all(&self) {
        // Pairs with the fence in `wake`: either this sees the new wake, or its maker sees the
        // flag.
        fence(Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.raise();
        }
    }

    /// Returns the wake, if a wait has made one.
    #[must_use]
    pub fn existing_wake(&self) -> Option<&Wake> {
        self.wake.get()
    }

    /// Returns the wake to wait for. Check the flag afterwards: a raise before the wake was made
    /// has not raised the wake.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn wake(&self) -> io::Result<&Wake> {
        if self.wake.get().is_none() {
            // Ignored: another thread has made one first, which works too.
            let _ = self.wake.set(Wake::new()?);
        }
        let wake = self.wake.get().ok_or(io::ErrorKind::NotFound)?;
        fence(Ordering::SeqCst);
        Ok(wake)
    }
}
