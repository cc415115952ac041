//! Console events as signals that are taken one by one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use super::{ArrivedSignal, Delivery, deliver};
use crate::base::signal::Signal;
use crate::base::wait::{self, Slot};
use crate::base::wake::Wake;

/// The signals that the console can report. Others can be requested, and never arrive.
const REPORTABLE: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TERM];

/// The signals that have arrived for the whole process, as on other systems.
struct Console {
    is_handled: bool,
    /// The caught signals, one bit for each number.
    caught: u32,
    /// The signals that have arrived and were not yet taken. Two arrivals before that count as one.
    pending: u32,
    /// Raised when a signal has arrived.
    wakes: Vec<Weak<Wake>>,
}

static CONSOLE: Mutex<Console> =
    Mutex::new(Console { is_handled: false, caught: 0, pending: 0, wakes: Vec::new() });

#[derive(Debug)]
pub(crate) struct Caught {
    set: u32,
    wake: Arc<Wake>,
}

impl Caught {
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Caught> {
        let mut set = 0;
        for signal in signals {
            if can_arrive(*signal)? {
                set |= bit(*signal);
            }
        }
        let wake = Arc::new(Wake::new()?);
        let mut console = console();
        if set != 0 {
            console.handle()?;
        }
        console.caught |= set;
        console.wakes.retain(|wake| wake.strong_count() > 0);
        console.wakes.push(Arc::downgrade(&wake));
        Ok(Caught { set, wake })
    }

    pub(crate) fn wait(&self) -> io::Result<ArrivedSignal> {
        loop {
            if let Some(arrived) = self.wait_until(None)? {
                return Ok(arrived);
            }
        }
    }

    pub(crate) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<ArrivedSignal>> {
        self.check()?;
        loop {
            if let Some(arrived) = self.take() {
                return Ok(Some(arrived));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            wait::any(&mut [Slot::Event(&*self.wake)], until)?;
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let mut watch = wait::Watch::default();
        loop {
            if let Some(arrived) = self.take() {
                return Ok(arrived);
            }
            let wait = |cx: &mut std::task::Context<'_>| {
                watch.poll_wait(cx, &mut [Slot::Event(&*self.wake)], None)
            };
            std::future::poll_fn(wait).await?;
        }
    }

    /// Returns an error if no signal could ever arrive.
    fn check(&self) -> io::Result<()> {
        if self.set == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn take(&self) -> Option<ArrivedSignal> {
        // Before the check: an arrival from here on raises it again.
        self.wake.lower();
        let mut console = console();
        let ours =
            REPORTABLE.into_iter().find(|signal| console.pending & self.set & bit(*signal) != 0);
        let signal = ours?;
        console.pending &= !bit(signal);
        if console.pending & self.set != 0 {
            self.wake.raise();
        }
        // Ctrl-C at the keyboard. A parent can also send a break, to one process group.
        let from_terminal = signal == Signal::INT;
        Some(ArrivedSignal { signal, from_terminal, from_own_group: false })
    }
}

impl Console {
    /// Installs the console handler.
    fn handle(&mut self) -> io::Result<()> {
        if !self.is_handled {
            // SAFETY: a function, which is valid as long as the program runs.
            if unsafe { SetConsoleCtrlHandler(Some(on_event), 1) } == 0 {
                return Err(io::Error::last_os_error());
            }
            self.is_handled = true;
        }
        Ok(())
    }
}

/// Returns true if the console can report the signal.
pub(crate) fn can_arrive(signal: Signal) -> io::Result<bool> {
    match signal {
        Signal::KILL | Signal::STOP => Err(io::ErrorKind::InvalidInput.into()),
        signal => Ok(REPORTABLE.contains(&signal)),
    }
}

/// Installs the console handler, for latches.
pub(crate) fn install(_: Signal) -> io::Result<()> {
    console().handle()
}

/// Does nothing: the system calls earlier handlers if ours does not handle a signal.
pub(crate) fn record_previous(_: Signal) -> io::Result<()> {
    Ok(())
}

/// Does nothing: our handler ignores a signal without a registration.
pub(crate) fn restore(_: Signal) {}

fn bit(signal: Signal) -> u32 {
    1 << signal.number()
}

fn console() -> MutexGuard<'static, Console> {
    // Integers, which are consistent between any two instructions.
    CONSOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles a console event. The system calls it on a thread of its own. 0: it is not handled here.
unsafe extern "system" fn on_event(event: u32) -> BOOL {
    let signal = match event {
        CTRL_C_EVENT => Signal::INT,
        CTRL_BREAK_EVENT => Signal::QUIT,
        CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT => Signal::TERM,
        // Any user has logged off. Only services receive it, and they go on.
        CTRL_LOGOFF_EVENT => return BOOL::from(is_handled(Signal::TERM)),
        _ => return 0,
    };
    let is_caught = record(signal);
    let delivered = deliver(signal.number(), || {});
    if !is_caught && delivered != Delivery::Handled {
        // As if this handler were not installed.
        return 0;
    }
    if signal == Signal::TERM {
        // The system ends the process when this returns, and after some seconds if it does not:
        // until then the program can clean up and exit by itself.
        loop {
            thread::park();
        }
    }
    1
}

/// Returns true if the program handles the signal, so that the system's own handler must not end
/// the process.
fn is_handled(signal: Signal) -> bool {
    console().caught & bit(signal) != 0 || super::is_handled(signal.number())
}

/// Records the arrival of a caught signal. Returns false if the signal is not caught.
fn record(signal: Signal) -> bool {
    let mut console = console();
    let is_caught = console.caught & bit(signal) != 0;
    if is_caught {
        console.pending |= bit(signal);
        console.wakes.iter().filter_map(Weak::upgrade).for_each(|wake| wake.raise());
    }
    is_caught
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_signal_is_taken_once_and_others_are_not_handled() {
        let caught = Caught::new(&[Signal::QUIT, Signal::USR1]).unwrap();
        // SAFETY: called as the system does.
        assert_eq!(unsafe { on_event(CTRL_CLOSE_EVENT) }, 0);
        thread::scope(|scope| {
            let waits = scope.spawn(|| caught.wait().unwrap());
            // SAFETY: as above.
            assert_eq!(unsafe { on_event(CTRL_BREAK_EVENT) }, 1);
            let arrived = waits.join().unwrap();
            assert_eq!((arrived.signal, arrived.from_terminal), (Signal::QUIT, false));
        });
        assert_eq!(console().pending, 0);
        // Services receive the log-off of every user, and go on if the program handles the signal
        // that would end it.
        // SAFETY: as above.
        assert_eq!(unsafe { on_event(CTRL_LOGOFF_EVENT) }, 0);
        let latches =
            super::super::SignalLatches::install(&[Signal::TERM], Arc::default()).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { on_event(CTRL_LOGOFF_EVENT) }, 1);
        assert_eq!(latches.first(), None);
    }

    #[test]
    fn a_wait_for_signals_that_cannot_arrive_fails() {
        let caught = Caught::new(&[Signal::USR1, Signal::HUP]).unwrap();
        assert_eq!(caught.wait().unwrap_err().kind(), io::ErrorKind::NotFound);
        let refused = Caught::new(&[Signal::INT, Signal::KILL]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
