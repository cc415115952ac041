//! What the console tells, as signals that are taken one by one.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

use super::super::{Arrived, Signal};

/// What the console can tell. Others can be asked for, and never come.
const COMING: [Signal; 3] = [Signal::INT, Signal::QUIT, Signal::TERM];

/// What has come for the whole process, as it is with signals elsewhere.
struct Console {
    is_handled: bool,
    /// What somebody takes, a bit for each number.
    caught: u32,
    /// What has come and nobody has taken. What comes twice before is one.
    pending: u32,
}

static CONSOLE: Mutex<Console> = Mutex::new(Console { is_handled: false, caught: 0, pending: 0 });
static CAME: Condvar = Condvar::new();

#[derive(Debug)]
pub(crate) struct Caught {
    set: u32,
}

impl Caught {
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Caught> {
        if signals.iter().any(|signal| matches!(*signal, Signal::KILL | Signal::STOP)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let coming = signals.iter().filter(|signal| COMING.contains(signal));
        let set = coming.fold(0, |set, signal| set | bit(*signal));
        let mut console = console();
        if set != 0 && !console.is_handled {
            // SAFETY: a function that lasts as long as the program.
            if unsafe { SetConsoleCtrlHandler(Some(on_event), 1) } == 0 {
                return Err(io::Error::last_os_error());
            }
            console.is_handled = true;
        }
        console.caught |= set;
        Ok(Caught { set })
    }

    pub(crate) fn wait(&self) -> io::Result<Arrived> {
        if self.set == 0 {
            // Nothing would ever come.
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut console = console();
        loop {
            let ours =
                COMING.into_iter().find(|signal| console.pending & self.set & bit(*signal) != 0);
            if let Some(signal) = ours {
                console.pending &= !bit(signal);
                // Ctrl-C at the keyboard. A break is also what a parent sends, to one group.
                return Ok(Arrived { signal, from_terminal: signal == Signal::INT });
            }
            console = CAME.wait(console).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

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
        CTRL_CLOSE_EVENT | CTRL_LOGOFF_EVENT | CTRL_SHUTDOWN_EVENT => Signal::TERM,
        _ => return 0,
    };
    if !note(signal) {
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

/// Whether somebody takes it.
fn note(signal: Signal) -> bool {
    let mut console = console();
    let is_caught = console.caught & bit(signal) != 0;
    if is_caught {
        console.pending |= bit(signal);
        CAME.notify_all();
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
    }

    #[test]
    fn what_never_comes_is_not_waited_for() {
        let caught = Caught::new(&[Signal::USR1, Signal::HUP]).unwrap();
        assert_eq!(caught.wait().unwrap_err().kind(), io::ErrorKind::NotFound);
        let refused = Caught::new(&[Signal::INT, Signal::KILL]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
