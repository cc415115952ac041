//! Stops and continues of this process while it has the terminal in raw mode: the modes go with them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use pipewright::Signal;
use pipewright_os::base::wait::Slot;
use pipewright_os::base::wake::Wake;
use pipewright_os::process::terminal;

pub(super) const FOLLOWED: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// Passes stops and continues from the thread that takes signals to the one that has set the modes.
#[derive(Debug)]
pub(crate) struct TerminalStops {
    wake: Wake,
    /// A stop was asked for.
    is_asked: AtomicBool,
    /// A thread follows.
    is_followed: AtomicBool,
}

impl TerminalStops {
    pub(super) fn new() -> io::Result<TerminalStops> {
        let (is_asked, is_followed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(TerminalStops { wake: Wake::new()?, is_asked, is_followed })
    }

    /// Takes a signal that is followed.
    pub(super) fn note(&self, signal: Signal) {
        let is_stop = signal == Signal::TSTP;
        match self.is_followed.load(Ordering::SeqCst) {
            true => {
                self.is_asked.fetch_or(is_stop, Ordering::SeqCst);
                self.wake.raise();
            }
            false if is_stop => terminal::stop_this_process(),
            false => {}
        }
    }

    /// Follows from now on, until it is called with false.
    pub(super) fn follow(&self, follows: bool) {
        self.is_followed.store(follows, Ordering::SeqCst);
    }

    /// Returns the event of a signal.
    pub(super) fn slot(&self) -> Slot<'_> {
        Slot::Event(&self.wake)
    }

    /// Handles the event, after `restore`: stops this process if that was asked for. Returns when it has been continued.
    pub(super) fn take(&self, restore: impl FnOnce()) {
        self.wake.lower();
        if self.is_asked.swap(false, Ordering::SeqCst) {
            restore();
            terminal::stop_this_process();
        }
    }
}
