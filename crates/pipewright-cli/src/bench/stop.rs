//! Ctrl-C while measuring: what there is so far is shown and saved. A second one ends at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use pipewright::{CaughtSignals, Signal};

use crate::exit_code;

/// Those that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Whether we were told to stop.
#[derive(Debug, Clone)]
pub(super) struct Stop(Arc<AtomicI32>);

impl Stop {
    /// From here on a signal that means "stop" is noted.
    pub(super) fn catch() -> io::Result<Stop> {
        let caught = CaughtSignals::new(&STOPPING)?;
        let stop = Stop(Arc::new(AtomicI32::new(0)));
        let noted = stop.clone();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(signal) = caught.wait() {
                    let before = noted.0.swap(signal.number(), Ordering::SeqCst);
                    if before != 0 {
                        std::process::exit(exit_code::of_signal(signal.number()));
                    }
                }
            },
        )?;
        Ok(stop)
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// The exit code that says so; `None`: nobody has asked.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            number => Some(exit_code::of_signal(number)),
        }
    }
}
