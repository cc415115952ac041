//! Changes of this process's terminal that others make: its size, and what a shell does while this process is stopped.

use std::io;
use std::time::{Duration, Instant};

use super::stop_this_process;
use crate::base::caught_signals::SignalFlag;
use crate::base::signal::Signal;
use crate::base::wait::Slot;

/// The interval between two looks at the terminal, where nothing reports a change.
const INTERVAL: Duration = Duration::from_millis(100);

/// Changes of this process's terminal, as long as this lives: of its size, and perhaps of its modes and its size while this
/// process was stopped.
///
/// # Platform
/// Unix: a handler for SIGWINCH and SIGCONT, which costs nothing while neither arrives. If one of them is ignored, and on
/// Windows: a look every 100 ms.
#[derive(Debug)]
pub struct TerminalChanges(Option<SignalFlag>);

impl TerminalChanges {
    /// Watches for changes from now on.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn watch() -> io::Result<TerminalChanges> {
        SignalFlag::install(&[Signal::WINCH, Signal::CONT]).map(TerminalChanges)
    }

    /// Returns the event of a change, which is there until [`take`](Self::take) takes it.
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        match &self.0 {
            Some(flag) => Slot::Event(flag.wake()),
            None => Slot::Off,
        }
    }

    /// Returns the time of the next look that is needed, if no event reports a change.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        self.0.is_none().then(|| Instant::now() + INTERVAL)
    }

    /// Returns true if the terminal may have changed, after a wait with that [`slot`](Self::slot). Look at it afterwards.
    #[must_use]
    pub fn take(&self, slot: &Slot<'_>) -> bool {
        let Some(flag) = &self.0 else { return true };
        let is_done = matches!(slot, Slot::EventDone);
        if is_done {
            flag.wake().lower();
        }
        is_done
    }
}

/// Requests to stop this process that are held back, as long as this lives, until its terminal has its own modes again.
///
/// # Platform
/// Unix: a handler for SIGTSTP. If it is ignored, and on Windows: nothing.
///
/// # Drop
/// Restores the previous effect of SIGTSTP.
#[derive(Debug)]
pub struct StopRequests(Option<SignalFlag>);

impl StopRequests {
    /// Holds requests back from now on.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn hold() -> io::Result<StopRequests> {
        SignalFlag::install(&[Signal::TSTP]).map(StopRequests)
    }

    /// Returns the event of a request, which is there until [`follow`](Self::follow) is called.
    #[must_use]
    pub fn slot(&self) -> Slot<'_> {
        match &self.0 {
            Some(flag) => Slot::Event(flag.wake()),
            None => Slot::Off,
        }
    }

    /// Returns true if there is a request.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.wake().is_raised())
    }

    /// Lets the signal have its previous effect: by default this process stops. Returns when it has been continued.
    ///
    /// # Errors
    /// No more handles are available: later requests are not held back.
    pub fn follow(&mut self) -> io::Result<()> {
        self.0 = None;
        stop_this_process();
        *self = StopRequests::hold()?;
        Ok(())
    }
}
