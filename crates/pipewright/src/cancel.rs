//! A token that cancels runs from other threads and tasks.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::{Latch, Wake};

/// A token that stops the runs it was passed to, from any thread.
///
/// Clones are the same token. A run with a token that is already cancelled still starts its child, and stops it at
/// once.
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
    /// Raised by the cancel. Allocated separately, because a signal handler may raise it.
    latch: Arc<Latch>,
    /// The number of the stop signal; 0 for the command's own.
    signal: AtomicI32,
    /// Signals to be forwarded to a child.
    to_forward: Mutex<Vec<Signal>>,
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops every run that has this token, now and later.
    pub fn cancel(&self) {
        self.0.latch.raise();
    }

    /// Cancels as [`cancel`](Self::cancel) does, with this stop signal instead of the command's own. If it is called
    /// more than once, the first signal counts.
    pub fn cancel_with(&self, signal: Signal) {
        let first = &self.0.signal;
        let _ = first.compare_exchange(0, signal.number(), Ordering::SeqCst, Ordering::SeqCst);
        self.cancel();
    }

    /// Sends a signal to the child of the run that waits with this token, and not to its descendants. A pipeline sends
    /// it to every stage. If several runs wait, an arbitrary one gets it.
    ///
    /// Wrapper programs need this for signals that are meant for the program they wrap.
    pub fn pass_on(&self, signal: Signal) {
        self.to_forward().push(signal);
        self.0.latch.notify_all();
    }

    /// Returns the flag, for a guard.
    pub(crate) fn latch(&self) -> &Arc<Latch> {
        &self.0.latch
    }

    /// Returns true if [`cancel`](Self::cancel) has been called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.latch.is_raised()
    }

    /// Waits until the token is cancelled, but no longer than `limit`. Returns true if it is cancelled.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let Ok(wake) = self.wake() else { return self.is_cancelled() };
        // A signal to forward also wakes this wait. There is no child here, so the signal is dropped.
        while !self.is_cancelled() && matches!(wait::any(&mut [Slot::Event(wake)], until), Ok(1)) {
            self.take_signals();
        }
        self.is_cancelled()
    }

    /// Returns the stop signal of the cancel, if it came with one.
    pub(crate) fn signal(&self) -> Option<Signal> {
        Signal::from_number(self.0.signal.load(Ordering::SeqCst))
    }

    /// Returns true if a run waits for the token or has waited for it, so that there was a child.
    #[doc(hidden)]
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.0.latch.existing_wake().is_some()
    }

    /// Takes the signals that are to be forwarded, after a wake-up. Check [`is_cancelled`](Self::is_cancelled) afterwards.
    #[doc(hidden)]
    pub fn take_signals(&self) -> Vec<Signal> {
        let mut to_forward = self.to_forward();
        if let Some(wake) = self.0.latch.existing_wake() {
            wake.lower();
            // A cancel wakes every waiter.
            if self.is_cancelled() {
                wake.raise();
            }
        }
        mem::take(&mut to_forward)
    }

    fn to_forward(&self) -> MutexGuard<'_, Vec<Signal>> {
        // The vector is consistent between calls.
        self.0.to_forward.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the event that a run waits for.
    #[doc(hidden)]
    pub fn wake(&self) -> io::Result<&Wake> {
        let wake = self.0.latch.wake()?;
        // Checked after the flag exists: a later cancel raises it.
        if self.is_cancelled() || !self.to_forward().is_empty() {
            wake.raise();
        }
        Ok(wake)
    }
}
