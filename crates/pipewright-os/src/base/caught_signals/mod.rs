//! Signals that this process takes instead of being ended by them.

mod trip;
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
pub use trip::Trip;

/// Signals that this process takes one by one instead of being ended by them.
///
/// # Platform
/// Unix: blocks them in the calling thread. Threads that are started later inherit that; threads that
/// run already do not, and children do not either. So call it before other threads are started (a
/// runtime of many threads among them). Windows: `SetConsoleCtrlHandler`, for the whole process;
/// Ctrl-C is `INT`, Ctrl-Break `QUIT`, and `TERM` that the console closes or the
/// system shuts down, after which there are some seconds (5 as a rule) until the process is ended. No
/// other comes.
#[derive(Debug)]
pub struct CaughtSignals(imp::Caught);

impl CaughtSignals {
    /// Catches these, apart from those that are ignored at the moment (`nohup`, a job in the
    /// background): they stay ignored. Call it before other threads are started.
    ///
    /// # Errors
    /// Windows: `KILL` or `STOP` is among them. (Unix leaves them out.)
    pub fn new(signals: &[Signal]) -> io::Result<CaughtSignals> {
        imp::Caught::new(signals).map(CaughtSignals)
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// Nothing was caught: all of them are ignored, or none of them ever comes (Windows).
    pub fn wait(&self) -> io::Result<Signal> {
        self.wait_for_arrival().map(|arrived| arrived.signal)
    }

    /// Waits for the next one, but not longer than that. Zero takes one that has come already.
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
    /// Linux: `signalfd`, and `sigtimedwait` without a wait. macOS: a kqueue, and `sigwait` when it
    /// tells of one. Windows: an event that the console's handler raises.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); and no room for another handle.
    #[doc(alias = "wait_timeout")]
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<Signal>> {
        // A limit that the clock cannot hold is none.
        let arrived = self.0.wait_until(Instant::now().checked_add(limit))?;
        Ok(arrived.map(|arrived| arrived.signal))
    }

    /// As [`wait`](Self::wait), for a task of a tokio runtime: blocks no thread (feature `tokio`).
    ///
    /// # Platform
    /// Unix: the handle of [`wait_for`](Self::wait_for), registered with the runtime. Where that has
    /// several threads, the signals have to be caught before it is built.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for); outside of a tokio runtime, `Unsupported`.
    #[cfg(feature = "tokio")]
    pub async fn wait_async(&self) -> io::Result<Signal> {
        self.0.wait_async().await.map(|arrived| arrived.signal)
    }

    /// Waits for the next one, and tells where it came from.
    ///
    /// # Platform
    /// Linux: `sigwaitinfo`. Other Unix: `sigwait`, and every signal counts as sent by a process.
    /// Windows: only Ctrl-C counts as sent by the terminal; a break is also what a parent sends.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_arrival(&self) -> io::Result<ArrivedSignal> {
        self.0.wait()
    }
}

/// A signal that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedSignal {
    /// Which.
    pub signal: Signal,
    /// The kernel sent it, not a process: Ctrl-C at the terminal, or its end. It went to the whole
    /// foreground group then.
    pub from_terminal: bool,
}
