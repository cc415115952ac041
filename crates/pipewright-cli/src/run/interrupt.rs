//! Signals that mean "stop": they stop the command first.

use std::sync::OnceLock;
use std::{io, sync::Arc, thread};

use pipewright::{CancelToken, Signal};

/// The signals, caught.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signal: Arc<OnceLock<Signal>>,
}

impl Interrupt {
    /// From here on Ctrl-C, TERM and HUP cancel the token instead of ending this process.
    pub(crate) fn catch(cancel: &CancelToken) -> io::Result<Interrupt> {
        let caught = pipewright::CaughtSignals::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
        let signal = Arc::new(OnceLock::new());
        let (first, cancel) = (Arc::clone(&signal), cancel.clone());
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(signal) = caught.wait() {
                    // The first one counts; who presses Ctrl-C twice means the same thing.
                    let _ = first.set(signal);
                    cancel.cancel();
                }
            },
        )?;
        Ok(Interrupt { signal })
    }

    /// The signal that came first.
    pub(crate) fn signal(&self) -> Option<Signal> {
        self.signal.get().copied()
    }
}
