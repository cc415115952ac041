//! Signals that this process receives instead of being ended by them.

mod signal_flag;
mod signal_latches;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::time::{Duration, Instant};

use crate::base::signal::Signal;
pub use signal_flag::SignalFlag;
pub use signal_latches::SignalLatches;

/// Signals that this process receives one by one instead of being ended by them.
///
/// # Platform
/// Unix: blocks the signals in the calling thread. Threads started later inherit that; threads that
/// already run do not, and neither do children. So call it before other threads start (including those
/// of a multi-threaded runtime). Windows: `SetConsoleCtrlHandler`, for the whole process.
/// Ctrl-C is `INT`, Ctrl-Break is `QUIT`. `TERM` means that the console closes or the system shuts
/// down; the process then ends after some seconds (usually 5). No other signal arrives.
#[derive(Debug)]
pub struct CaughtSignals(imp::Caught);

impl CaughtSignals {
    /// Catches these signals, except those that are currently ignored (`nohup`, a background job):
    /// they stay ignored. Call it before other threads start.
    ///
    /// # Errors
    /// Windows: `KILL` or `STOP` is among them. (Unix leaves them out.) macOS: no thread can be started, or no more handles are
    /// available.
    pub fn new(signals: &[Signal]) -> io::Result<CaughtSignals> {
        imp::Caught::new(signals).map(CaughtSignals)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// No signal can arrive: all of them are ignored, or Windows does not send them.
    pub fn wait(&self) -> io::Result<Signal> {
        self.wait_for_arrival().map(|arrived| arrived.signal)
    }

    /// Waits for the next signal, up to a time limit. Zero takes a signal that has already arrived.
    ///
    /// ```
    /// # use pipewright_os::base::caught_signals::CaughtSignals;
    /// # use pipewright_os::base::signal::Signal;
    /// use std::time::Duration;
    /// let caught = CaughtSignals::new(&[Signal::TERM])?;
    /// assert_eq!(caught.wait_for(Duration::from_millis(1))?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Platform
    /// Linux: `sigtimedwait`. macOS: a thread in `sigwait`, which no other call there can replace. Windows: an
    /// event that the console's handler sets.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[doc(alias = "wait_timeout")]
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<Signal>> {
        // A limit beyond the range of the clock is no limit.
        let arrived = self.0.wait_until(Instant::now().checked_add(limit))?;
        Ok(arrived.map(|arrived| arrived.signal))
    }

    /// Waits as [`wait`](Self::wait) does, for a task of a tokio runtime: blocks no thread (feature
    /// `tokio`).
    ///
    /// # Platform
    /// Linux: a `signalfd`, registered with the runtime; macOS: the pipe of the thread in `sigwait`. Catch the signals before you
    /// build a multi-threaded runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); also if no more handles are available; outside a tokio runtime,
    /// `Unsupported`.
    #[cfg(feature = "tokio")]
    pub async fn wait_async(&self) -> io::Result<Signal> {
        self.0.wait_async().await.map(|arrived| arrived.signal)
    }

    /// Waits for the next signal, and also returns its origin.
    ///
    /// # Platform
    /// Linux: `sigwaitinfo`. macOS: `sigwait`, which does not tell the sender: `INT`, `QUIT` and `TSTP` count as sent by the terminal
    /// if this process is in its foreground (`tcgetpgrp`).
    /// Windows: only Ctrl-C counts as sent by the terminal; a parent can also send a break.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_arrival(&self) -> io::Result<ArrivedSignal> {
        self.0.wait()
    }
}

/// A signal that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedSignal {
    /// The signal.
    pub signal: Signal,
    /// True if the kernel sent it, and not a process: Ctrl-C at the terminal, which the whole foreground group received, or
    /// a hang-up, which the leader of the session received alone.
    pub from_terminal: bool,
    /// True if another process of this process's group sent it, perhaps to the whole group (`kill(0)`).
    ///
    /// # Platform
    /// macOS and Windows: false; the sender is not known.
    pub from_own_group: bool,
}
