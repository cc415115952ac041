//! A way to stop runs from elsewhere.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pipewright_os::mux::{self, Slot};
use pipewright_os::wake::Wake;

/// Stops the runs that were given it, from any thread.
///
/// Clones are the same token. A run that is given a token that is cancelled already still starts
/// its child, and stops it at once.
///
/// ```
/// use pipewright::{CancelToken, Command, Outcome};
///
/// let token = CancelToken::new();
/// let remote = token.clone();
/// let canceller = std::thread::spawn(move || remote.cancel());
/// let capture = Command::new("sleep").arg("60").cancel(&token).capture()?;
/// assert_eq!(capture.outcome, Outcome::Cancelled);
/// # canceller.join().unwrap();
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cancelled: AtomicBool,
    /// Made by the first run that waits for it.
    wake: OnceLock<Wake>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops every run that has this token, now and later.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        // With its twin in `wake`: either we see the flag in place, or its maker sees this.
        fence(Ordering::SeqCst);
        if let Some(wake) = self.0.wake.get() {
            wake.raise();
        }
    }

    /// Whether [`cancel`](Self::cancel) has been called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until the token is cancelled, but not longer than that. Says whether it is.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        if let Ok(wake) = self.wake() {
            // Ignored: what counts is whether it is cancelled now.
            let _ = mux::wait(&mut [Slot::Wake(wake)], until);
        }
        self.is_cancelled()
    }

    /// What a run waits for.
    pub(crate) fn wake(&self) -> io::Result<&Wake> {
        if self.0.wake.get().is_none() {
            // Ignored: another run was faster, and its flag serves as well.
            let _ = self.0.wake.set(Wake::new()?);
        }
        let wake = self.0.wake.get().ok_or(io::ErrorKind::NotFound)?;
        // Looked at after the flag is in place: whoever cancels from now on raises it.
        fence(Ordering::SeqCst);
        if self.is_cancelled() {
            wake.raise();
        }
        Ok(wake)
    }
}
