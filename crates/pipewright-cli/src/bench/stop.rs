//! Ctrl-C during a benchmark: the results so far are printed and saved. A second Ctrl-C exits at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use pipewright::{ArrivedSignal, CaughtSignals, Signal};

use crate::exit_code;

/// The signals that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// A request to stop, from a signal.
#[derive(Debug, Clone)]
pub(super) struct Stop(Arc<Requested>);

#[derive(Debug, Default)]
struct Requested {
    /// The number of the signal; 0: none has arrived.
    signal: AtomicI32,
    /// The signal was Ctrl-C.
    ctrl_c: AtomicBool,
}

impl Stop {
    /// Starts to catch the signals that mean "stop".
    pub(super) fn catch() -> io::Result<Stop> {
        let caught = CaughtSignals::new(&STOPPING)?;
        let stop = Stop(Arc::default());
        let recording = stop.clone();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(arrived) = caught.wait_for_arrival() {
                    recording.record(arrived);
                }
            },
        )?;
        Ok(stop)
    }

    fn record(&self, arrived: ArrivedSignal) {
        let is_second = self.is_requested();
        let ArrivedSignal { signal, from_terminal, .. } = arrived;
        self.0.ctrl_c.store(from_terminal && signal == Signal::INT, Ordering::SeqCst);
        self.0.signal.store(signal.number(), Ordering::SeqCst);
        if is_second {
            std::process::exit(self.end().unwrap_or(exit_code::OWN_FAILURE));
        }
    }

    /// Returns true once a signal has arrived.
    pub(super) fn is_requested(&self) -> bool {
        self.0.signal.load(Ordering::SeqCst) != 0
    }

    /// Raises SIGINT if the signal was Ctrl-C, so that a shell ends its loop as well; otherwise returns the exit code for
    /// the signal. `None`: no signal has arrived.
    pub(super) fn end(&self) -> Option<i32> {
        if self.0.ctrl_c.load(Ordering::SeqCst) {
            Signal::INT.raise();
        }
        match self.0.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(exit_code::of_signal(number)),
        }
    }
}
