//! Cancelling tokens by signals.

use std::io;
use std::sync::Arc;

use pipewright_os::base::caught_signals::SignalLatches;
use pipewright_os::base::signal::Signal;

use crate::cancel::CancelToken;

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
