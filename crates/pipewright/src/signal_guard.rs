//! Signals that cancel tokens.

use std::io;
use std::sync::Arc;

use pipewright_os::base::caught_signals::SignalLatches;
use pipewright_os::base::signal::Signal;

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

/// Cancels by signals.
impl CancelToken {
    /// Lets signals cancel the token, for as long as the guard lives: the first of them, as
    /// [`cancel`](Self::cancel) does. The next one has its usual effect, as if there were no guard
    /// (Ctrl-C ends this process), so that a user is never stuck; [`SignalGuard::then`] comes before
    /// that. [`SignalGuard::received`] tells which signal it was.
    ///
    /// It takes no thread, and threads that run already need not care. Signals that are ignored at
    /// the moment (`nohup`, a job in the background) stay ignored. The recipes of docs/stopping.md
    /// use it.
    ///
    /// ```
    /// use pipewright::{CancelToken, Command, Signal};
    ///
    /// let token = CancelToken::new();
    /// let guard = token.cancel_on(&[Signal::INT, Signal::TERM])?;
    /// // From here on Ctrl-C stops this command, and this process goes on.
    /// let capture = Command::new("echo").arg("hi").cancel(&token).capture()?;
    /// assert_eq!((capture.stdout.as_str(), guard.received()), ("hi\n", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Platform
    /// Unix: a handler (`sigaction` with `SA_RESTART`), in place of any other until the guard is
    /// dropped; system calls of other code may return `EINTR` when a signal comes. It does not see a signal that is blocked in all threads, as
    /// [`CaughtSignals`](crate::CaughtSignals) blocks it. Windows: `SetConsoleCtrlHandler`; Ctrl-C is
    /// `INT`, Ctrl-Break `QUIT`, and the end of the console or the session `TERM`, after which there
    /// are some seconds (5 as a rule). No other comes.
    ///
    /// # Errors
    /// One of them cannot be handled (`KILL`, `STOP`): `InvalidInput`.
    #[doc(alias = "ctrl_c")]
    #[doc(alias = "sigint")]
    pub fn cancel_on(&self, signals: &[Signal]) -> io::Result<SignalGuard> {
        SignalLatches::install(signals, Arc::clone(self.latch())).map(SignalGuard)
    }
}

impl SignalGuard {
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
