//! Changes of the size of this process's terminal.

use std::io;
use std::time::{Duration, Instant};

use crate::base::caught_signals::SignalFlag;
use crate::base::signal::Signal;
use crate::base::wait::Slot;

/// The interval between two looks at the size, where nothing reports a change.
const INTERVAL: Duration = Duration::from_millis(100);

/// Changes of the size of this process's terminal, as long as this lives.
///
/// # Platform
/// Unix: a handler for SIGWINCH, which costs nothing while the size stays the same. If SIGWINCH is ignored, and on Windows: a
/// look every 100 ms.
#[derive(Debug)]
pub struct SizeChanges(Option<SignalFlag>);

impl SizeChanges {
    /// Watches for changes from now on.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn watch() -> io::Result<SizeChanges> {
        SignalFlag::install(Signal::WINCH).map(SizeChanges)
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

    /// Returns true if the size may have changed, after a wait with that [`slot`](Self::slot). Look at it afterwards.
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
