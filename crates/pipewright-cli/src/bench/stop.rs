//! Ctrl-C while measuring: what there is so far is shown and saved. A second one ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use pipewright::{ArrivedSignal, CaughtSignals, Signal};

use crate::exit_code;

/// Those that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Whether we were told to stop.
#[derive(Debug, Clone)]
pub(super) struct Stop(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The number of the signal; 0: none has come.
    signal: AtomicI32,
    /// It was Ctrl-C.
    ctrl_c: AtomicBool,
}

impl Stop {
    /// From here on a signal that means "stop" is noted.
    pub(super) fn catch() -> io::Result<Stop> {
        let caught = CaughtSignals::new(&STOPPING)?;
        let stop = Stop(Arc::default());
        let noting = stop.clone();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(arrived) = caught.wait_for_arrival() {
                    noting.note(arrived);
                }
            },
        )?;
        Ok(stop)
    }

    fn note(&self, arrived: ArrivedSignal) {
        let is_second = self.is_asked_for();
        let ArrivedSignal { signal, from_terminal, .. } = arrived;
        self.0.ctrl_c.store(from_terminal && signal == Signal::INT, Ordering::SeqCst);
        self.0.signal.store(signal.number(), Ordering::SeqCst);
        if is_second {
            std::process::exit(self.end().unwrap_or(exit_code::OWN_FAILURE));
        }
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.signal.load(Ordering::SeqCst) != 0
    }

    /// Ends us by Ctrl-C where that was it, and with it the loop of a shell; else gives the exit code that tells of
    /// the signal. `None`: nobody has asked.
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
