//! A token that cancels runs from other threads and tasks, and when signals arrive.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem};

use pipewright_os::base::caught_signals::SignalLatches;
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
    fn latch(&self) -> &Arc<Latch> {
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

    /// Takes the signals that are to be forwarded, after a wake-up. Check [`is_cancelled`](Self::is_cancelled)
    /// afterwards.
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

/// A guard that lets signals cancel a token until it is dropped, from
/// [`CancelToken::cancel_on`](CancelToken::cancel_on).
///
/// Several guards for one signal all receive it. The signal has its usual effect again once none of them has a
/// token left. Signals within a tenth of a second count as one, because a supervisor may signal both this process
/// and its group.
///
/// # Drop
/// Restores the previous effect of the signals. The token stays as it is.
#[derive(Debug)]
#[must_use = "the signals have their usual effect again when this is dropped"]
pub struct SignalGuard(SignalLatches);

/// Cancelling by signals.
impl CancelToken {
    /// Cancels the token when the first of these signals arrives, as [`cancel`](Self::cancel) does, until the guard
    /// is dropped. The next signal has its usual effect, as without a guard (Ctrl-C ends this process), so a user
    /// is never stuck; tokens added by [`SignalGuard::then`] come first. [`SignalGuard::received`] returns the
    /// signal.
    ///
    /// No thread is started, and threads that are already running need no preparation. Signals that are currently
    /// ignored (`nohup`, a background job) stay ignored. `docs/stopping.md` in the repository has recipes.
    ///
    /// ```
    /// use pipewright::{CancelToken, Command, Signal};
    ///
    /// let token = CancelToken::new();
    /// let guard = token.cancel_on(&[Signal::INT, Signal::TERM])?;
    /// // From here on, Ctrl-C stops this command, and this process continues.
    /// let capture = Command::new("echo").arg("hi").cancel(&token).capture()?;
    /// assert_eq!((capture.stdout.as_str(), guard.received()), ("hi\n", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Platform
    /// Unix: a handler (`sigaction` with `SA_RESTART`) replaces any other until the guard is dropped. System calls
    /// of other code may return `EINTR` when a signal arrives. A signal that is blocked in all threads, as by
    /// [`CaughtSignals`](crate::CaughtSignals), is not received. Windows: `SetConsoleCtrlHandler`. Ctrl-C is
    /// `INT`, Ctrl-Break is `QUIT`, and closing the console or the session is `TERM`, after which the system allows
    /// some seconds (usually 5). Other signals never arrive.
    ///
    /// # Errors
    /// `InvalidInput`: one of the signals cannot be handled (`KILL`, `STOP`).
    #[doc(alias = "ctrl_c")]
    #[doc(alias = "sigint")]
    pub fn cancel_on(&self, signals: &[Signal]) -> io::Result<SignalGuard> {
        SignalLatches::install(signals, Arc::clone(self.latch())).map(SignalGuard)
    }
}

impl SignalGuard {
    /// Adds a token. Each signal cancels the next token, in the order in which they were added. The signal after the
    /// last token has its usual effect.
    ///
    /// ```
    /// use pipewright::{CancelToken, Signal};
    /// // The first Ctrl-C drains, the second one stops, the third one ends this process.
    /// let (drain, stop) = (CancelToken::new(), CancelToken::new());
    /// let guard = drain.cancel_on(&[Signal::INT])?.then(&stop);
    /// assert_eq!(guard.received(), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn then(self, token: &CancelToken) -> SignalGuard {
        self.0.push(Arc::clone(token.latch()));
        self
    }

    /// Returns the first signal that arrived, if any.
    ///
    /// After cleaning up, drop the guard and call [`Signal::raise`], to end as that signal would have ended this
    /// process.
    #[must_use]
    pub fn received(&self) -> Option<Signal> {
        self.0.first()
    }

    /// Returns the number of signals that arrived.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }
}
