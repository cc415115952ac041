//! Signals that cancel tokens.

use std::io;
use std::sync::Arc;

use pipewright_os::base::caught_signals::SignalLatches;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wake::Latch;

use crate::cancel::CancelToken;

/// Signals that cancel a token while this lives: from
/// [`CancelToken::cancel_on`](CancelToken::cancel_on).
///
/// Several guards for one signal all see it, and it has its usual effect again when none of them has
/// a token left. Signals that come within a tenth of a second count
/// once: a supervisor may send to this process and to its group as well.
///
/// # Drop
/// Gives the signals the effect that they had before. The token stays as it is.
#[derive(Debug)]
#[must_use = "the signals have their usual effect again when this is dropped"]
pub struct SignalGuard(SignalLatches);

impl SignalGuard {
    pub(crate) fn new(signals: &[Signal], latch: &Arc<Latch>) -> io::Result<SignalGuard> {
        SignalLatches::install(signals, Arc::clone(latch)).map(SignalGuard)
    }

    /// Lets one more signal cancel another token, after those that come before it. The signal after
    /// the last token has its usual effect.
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

    /// Returns the signal that came first, if one has come.
    ///
    /// After tidying up, drop the guard and end as that signal would have ended this process:
    /// [`Signal::raise`].
    #[must_use]
    pub fn received(&self) -> Option<Signal> {
        self.0.first()
    }

    /// Returns how many signals have come.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }
}
