//! Signals: the first Ctrl-C lets running jobs end, the second one stops them. SIGTERM and SIGHUP stop them at once.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use pipewright::{CaughtSignals, Signal};
use pipewright_batch::Control;

use crate::{exit_code, print_error};

/// Caught signals, handled by a thread.
#[derive(Debug)]
pub(super) struct Interrupt {
    signal: Arc<OnceLock<Signal>>,
}

impl Interrupt {
    /// Catches signals for this batch.
    pub(super) fn catch(control: Control) -> io::Result<Interrupt> {
        let caught = CaughtSignals::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
        let signal = Arc::new(OnceLock::new());
        let first = Arc::clone(&signal);
        let handle = move || {
            while let Ok(arrived) = caught.wait_for_arrival() {
                let is_first = first.set(arrived.signal).is_ok();
                if is_first && arrived.signal == Signal::INT {
                    print_error("no more jobs are started; Ctrl-C again stops the running ones");
                    control.drain();
                } else {
                    control.stop();
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(handle)?;
        Ok(Interrupt { signal })
    }

    /// Returns the exit code. Kills this process by SIGINT after a Ctrl-C, so that a shell ends its loop.
    pub(super) fn end(&self, code: i32) -> i32 {
        match self.signal.get() {
            Some(_) if code == exit_code::OWN_FAILURE => code,
            Some(&Signal::INT) => {
                Signal::INT.raise();
                exit_code::of_signal(Signal::INT.number())
            }
            Some(signal) => exit_code::of_signal(signal.number()),
            None => code,
        }
    }
}
