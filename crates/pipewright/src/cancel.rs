//! A way to stop runs from elsewhere.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::{Latch, Wake};

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
    /// Up once it is cancelled. Of its own, as a signal handler raises it.
    latch: Arc<Latch>,
    /// The number of the signal that stops; 0: that of the command.
    signal: AtomicI32,
    /// Signals on their way to a child.
    passed_on: Mutex<Vec<Signal>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops every run that has this token, now and later.
    pub fn cancel(&self) {
        self.0.latch.raise();
    }

    /// As [`cancel`](Self::cancel), with that stop signal in the place of the command's own. The
    /// first one counts.
    pub fn cancel_with(&self, signal: Signal) {
        let first = &self.0.signal;
        let _ = first.compare_exchange(0, signal.number(), Ordering::SeqCst, Ordering::SeqCst);
        self.cancel();
    }

    /// Sends a signal to the child of the run that waits with this token, and to nobody else;
    /// where several runs do, to that of one of them.
    ///
    /// For programs that stand in the place of another one, and are sent what is meant for that.
    pub fn pass_on(&self, signal: Signal) {
        self.passed_on().push(signal);
        self.0.latch.notify_all();
    }

    /// The flag, for a guard.
    pub(crate) fn latch(&self) -> &Arc<Latch> {
        &self.0.latch
    }

    /// Whether [`cancel`](Self::cancel) has been called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.latch.is_raised()
    }

    /// Waits until the token is cancelled, but not longer than that. Says whether it is.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let Ok(wake) = self.wake() else { return self.is_cancelled() };
        // Woken for a signal that is on its way to a child of which there is none: waits on.
        while !self.is_cancelled() && matches!(wait::any(&mut [Slot::Event(wake)], until), Ok(1)) {
            self.take_signals();
        }
        self.is_cancelled()
    }

    /// The signal that the cancel came with.
    pub(crate) fn signal(&self) -> Option<Signal> {
        Signal::from_number(self.0.signal.load(Ordering::SeqCst))
    }

    /// Whether a run waits for the token, or has: then there was a child.
    #[doc(hidden)]
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.0.latch.existing_wake().is_some()
    }

    /// Takes the signals that are to be forwarded, after a wake-up. Look at [`is_cancelled`](Self::is_cancelled)
    /// afterwards.
    #[doc(hidden)]
    pub fn take_signals(&self) -> Vec<Signal> {
        let mut passed_on = self.passed_on();
        if let Some(wake) = self.0.latch.existing_wake() {
            wake.lower();
            // A cancel is for everyone who waits.
            if self.is_cancelled() {
                wake.raise();
            }
        }
        mem::take(&mut passed_on)
    }

    fn passed_on(&self) -> MutexGuard<'_, Vec<Signal>> {
        // A vector is whole between calls.
        self.0.passed_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a run waits for.
    #[doc(hidden)]
    pub fn wake(&self) -> io::Result<&Wake> {
        let wake = self.0.latch.wake()?;
        // Looked at after the flag is in place: whoever cancels from now on raises it.
        if self.is_cancelled() || !self.passed_on().is_empty() {
            wake.raise();
        }
        Ok(wake)
    }
}
