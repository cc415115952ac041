//! What the console tells, as signals that are taken one by one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use super::ArrivedSignal;
use super::trip::{self, Delivered};
use crate::base::signal::Signal;
use crate::base::wait::{self, Slot};
use crate::base::wake::Wake;

/// What the console can tell. Others can be asked for, and never come.
const COMING: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TERM];

/// What has come for the whole process, as it is with signals elsewhere.
struct Console {
    is_handled: bool,
    /// What somebody takes, a bit for each number.
    caught: u32,
    /// What has come and nobody has taken. What comes twice before is one.
    pending: u32,
    /// Raised when something has come.
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
            if can_come(*signal)? {
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

    /// Nothing would ever come.
    fn check(&self) -> io::Result<()> {
        if self.set == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Takes one that has come.
    fn take(&self) -> Option<ArrivedSignal> {
        // Before the look: what comes from here on raises it again.
        self.wake.lower();
        let mut console = console();
        let ours = COMING.into_iter().find(|signal| console.pending & self.set & bit(*signal) != 0);
        let signal = ours?;
        console.pending &= !bit(signal);
        if console.pending & self.set != 0 {
            self.wake.raise();
        }
        // Ctrl-C at the keyboard. A break is also what a parent sends, to one group.
        Some(ArrivedSignal { signal, from_terminal: signal == Signal::INT })
    }
}

impl Console {
    /// Lets the system call the handler.
    fn handle(&mut self) -> io::Result<()> {
        if !self.is_handled {
            // SAFETY: a function that lasts as long as the program.
            if unsafe { SetConsoleCtrlHandler(Some(on_event), 1) } == 0 {
                return Err(io::Error::last_os_error());
            }
            self.is_handled = true;
        }
        Ok(())
    }
}

/// Whether the console can tell of it.
pub(crate) fn can_come(signal: Signal) -> io::Result<bool> {
    match signal {
        Signal::KILL | Signal::STOP => Err(io::ErrorKind::InvalidInput.into()),
        signal => Ok(COMING.contains(&signal)),
    }
}

/// Lets the handler be called, for trips.
pub(crate) fn install(_: Signal) -> io::Result<()> {
    console().handle()
}

/// Does nothing: the handlers before ours are called if ours does not take a signal.
pub(crate) fn prepare(_: Signal) -> io::Result<()> {
    Ok(())
}

/// Does nothing: our handler takes no signal that no trip wants.
pub(crate) fn restore(_: Signal) {}

fn bit(signal: Signal) -> u32 {
    1 << signal.number()
}

fn console() -> MutexGuard<'static, Console> {
    // Numbers, which are whole between any two instructions.
    CONSOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the system on a thread of its own. 0: it is not handled here.
unsafe extern "system" fn on_event(event: u32) -> BOOL {
    let signal = match event {
        CTRL_C_EVENT => Signal::INT,
        CTRL_BREAK_EVENT => Signal::QUIT,
        CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT => Signal::TERM,
        // Any user has logged off. Only services are told of it: they go on.
        CTRL_LOGOFF_EVENT => return BOOL::from(is_taken(Signal::TERM)),
        _ => return 0,
    };
    let is_caught = note(signal);
    let delivered = trip::deliver(signal.number(), || {});
    if !is_caught && delivered != Delivered::Taken {
        // As if this handler were not there.
        return 0;
    }
    if signal == Signal::TERM {
        // The process is ended as soon as this returns, and after some seconds if it does not:
        // until then whoever takes the signal can tidy up, and end the process.
        loop {
            thread::park();
        }
    }
    1
}

/// True if somebody takes it, so that the system's own handler is not to end the process.
fn is_taken(signal: Signal) -> bool {
    console().caught & bit(signal) != 0 || trip::is_wanted(signal.number())
}

/// Whether somebody takes it.
fn note(signal: Signal) -> bool {
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
    fn what_comes_is_taken_once_and_what_nobody_takes_is_not_handled() {
        let caught = Caught::new(&[Signal::QUIT, Signal::USR1]).unwrap();
        // SAFETY: as the system calls it.
        assert_eq!(unsafe { on_event(CTRL_CLOSE_EVENT) }, 0);
        thread::scope(|scope| {
            let waits = scope.spawn(|| caught.wait().unwrap());
            // SAFETY: as above.
            assert_eq!(unsafe { on_event(CTRL_BREAK_EVENT) }, 1);
            let arrived = waits.join().unwrap();
            assert_eq!((arrived.signal, arrived.from_terminal), (Signal::QUIT, false));
        });
        assert_eq!(console().pending, 0);
        // A service is told of every user who logs off, and goes on where somebody takes what would end it.
        // SAFETY: as above.
        assert_eq!(unsafe { on_event(CTRL_LOGOFF_EVENT) }, 0);
        let trip = trip::Trip::set(&[Signal::TERM], Arc::default()).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { on_event(CTRL_LOGOFF_EVENT) }, 1);
        assert_eq!(trip.first(), None);
    }

    #[test]
    fn what_never_comes_is_not_waited_for() {
        let caught = Caught::new(&[Signal::USR1, Signal::HUP]).unwrap();
        assert_eq!(caught.wait().unwrap_err().kind(), io::ErrorKind::NotFound);
        let refused = Caught::new(&[Signal::INT, Signal::KILL]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
