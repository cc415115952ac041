//! Signals that are meant for the command: they are passed on, or stop it.

use std::sync::OnceLock;
use std::{io, sync::Arc, thread};

use pipewright::{ArrivedSignal, CancelToken, CaughtSignals, Signal};

/// Those that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Those that mean whatever the command makes of them.
const OTHERS: [Signal; 3] = [Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals, caught.
#[derive(Debug)]
pub(crate) struct Interrupt {
    signal: Arc<OnceLock<Signal>>,
}

impl Interrupt {
    /// From here on signals do not end this process: one that means "stop" cancels the token, and
    /// the command is sent it in the place of the stop signal; others are passed on.
    ///
    /// `shares_terminal`: the command is in our process group, and has got what the terminal sends
    /// (Ctrl-C) itself. It may have its own idea of what that means, as an editor has.
    ///
    /// `is_followed`: when the command stops, so do we, and not before. The shell would take the terminal back
    /// while the command may still be about to read from it, and it would take what is typed for the shell.
    pub(crate) fn catch(
        cancel: &CancelToken,
        shares_terminal: bool,
        is_followed: bool,
    ) -> io::Result<Interrupt> {
        let mut caught = [STOPPING, OTHERS].concat();
        caught.extend(is_followed.then_some(Signal::TSTP));
        let caught = CaughtSignals::new(&caught)?;
        let signal = Arc::new(OnceLock::new());
        let (first, cancel) = (Arc::clone(&signal), cancel.clone());
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(ArrivedSignal { signal, from_terminal, .. }) =
                    caught.wait_for_arrival()
                {
                    if from_terminal && shares_terminal {
                        continue;
                    }
                    if STOPPING.contains(&signal) {
                        // The first one counts; who presses Ctrl-C twice means the same thing.
                        let _ = first.set(signal);
                        cancel.cancel_with(signal);
                    } else {
                        cancel.pass_on(signal);
                    }
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
