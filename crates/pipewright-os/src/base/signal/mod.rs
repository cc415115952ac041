//! Signal names and numbers.

use std::fmt;
use std::str::FromStr;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(all(target_os = "macos", feature = "process"))]
pub(crate) use unix::current_mask;
#[cfg(unix)]
pub(crate) use unix::{AllBlocked, empty_set, is_ignored};
#[cfg(windows)]
use windows as imp;

/// A signal, under the number that this platform gives it.
///
/// Plain data on every platform; sending a signal that the platform cannot send is an error.
///
/// ```
/// # use pipewright_os::base::signal::Signal;
/// let term: Signal = "term".parse()?;
/// assert_eq!(term, Signal::TERM);
/// assert_eq!(term.to_string(), "SIGTERM");
/// # Ok::<(), pipewright_os::base::signal::UnknownSignal>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

/// A text that names no signal of this platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSignal(String);

impl Signal {
    /// Hang-up: the terminal is gone.
    pub const HUP: Signal = Signal(imp::HUP);
    /// Interrupt: Ctrl-C.
    pub const INT: Signal = Signal(imp::INT);
    /// Quit: Ctrl-\, with a core dump.
    pub const QUIT: Signal = Signal(imp::QUIT);
    /// Abort.
    pub const ABRT: Signal = Signal(imp::ABRT);
    /// Kill: cannot be caught or ignored.
    pub const KILL: Signal = Signal(imp::KILL);
    /// User-defined, the first.
    pub const USR1: Signal = Signal(imp::USR1);
    /// User-defined, the second.
    pub const USR2: Signal = Signal(imp::USR2);
    /// A write to a pipe that has no reader.
    pub const PIPE: Signal = Signal(imp::PIPE);
    /// Terminate: the usual request to end.
    pub const TERM: Signal = Signal(imp::TERM);
    /// Continue a stopped process.
    pub const CONT: Signal = Signal(imp::CONT);
    /// Stop: cannot be caught or ignored.
    pub const STOP: Signal = Signal(imp::STOP);
    /// Stop at the terminal: Ctrl-Z.
    pub const TSTP: Signal = Signal(imp::TSTP);
    /// The size of the terminal has changed.
    pub const WINCH: Signal = Signal(imp::WINCH);

    /// Returns the signal with that number, if there is one: 1 to 64 on Linux, 1 to 31 elsewhere.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Signal> {
        if number >= 1 && number <= imp::LAST { Some(Signal(number)) } else { None }
    }

    /// Sends this signal to the calling thread, as raise(3) does, and delivers it before the call
    /// returns, even if another thread [catches](crate::base::caught_signals::CaughtSignals) it.
    ///
    /// Call it to end this program after an interrupt, when you have cleaned up. The signal's
    /// default action then ends the program, so a shell sees the signal (128 + number), and Ctrl-C
    /// ends the shell's loop too.
    ///
    /// Returns if the signal is ignored or has a handler: drop the guard that handles it first.
    ///
    /// # Platform
    /// Unix: `pthread_kill`. Windows: does nothing, as signals end no process there.
    pub fn raise(self) {
        imp::raise(self);
    }

    /// Returns the platform's number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns the name, with its `SIG`; `None` for a number without one (real-time signals).
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        imp::named().find(|(_, number)| *number == self.0).map(|(name, _)| name)
    }
}

/// Gives each of these signals its default effect, if this process ignores it. Children that start later inherit that.
///
/// # Platform
/// Unix: `sigaction(SIG_DFL)`. Windows: does nothing.
pub fn stop_ignoring(signals: &[Signal]) {
    signals.iter().copied().for_each(imp::stop_ignoring);
}

/// Makes this process the leader of a process group of its own, with the children that start later. Returns false if this
/// system has no such groups.
///
/// A process that leads its group already keeps it, and the terminal, if its group has it.
///
/// # Platform
/// Unix: `setpgid`. Windows: returns false.
pub fn lead_own_group() -> bool {
    imp::lead_own_group()
}

/// Sends a signal to all processes of this process's group, this one too.
///
/// # Platform
/// Unix: `kill(0)`. Windows: does nothing, as [`lead_own_group`] says.
pub fn send_to_own_group(signal: Signal) {
    imp::send_to_own_group(signal);
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    /// Parses a name with or without `SIG`, in any case, or a number.
    fn from_str(text: &str) -> Result<Signal, UnknownSignal> {
        let unknown = || UnknownSignal(text.to_owned());
        if let Ok(number) = text.parse() {
            return Signal::from_number(number).ok_or_else(unknown);
        }
        let upper = text.to_ascii_uppercase();
        let suffix = upper.strip_prefix("SIG").unwrap_or(&upper);
        imp::named()
            .find(|(name, _)| name.strip_prefix("SIG") == Some(suffix))
            .map(|(_, number)| Signal(number))
            .ok_or_else(unknown)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for UnknownSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not a signal", self.0.escape_debug())
    }
}

impl std::error::Error for UnknownSignal {}

#[cfg(test)]
mod tests {
    use super::Signal;

    #[test]
    fn every_name_parses_back_with_and_without_sig() {
        for number in 1..=31 {
            let signal = Signal::from_number(number).unwrap();
            let Some(name) = signal.name() else { continue };
            assert_eq!(name.parse(), Ok(signal));
            assert_eq!(name[3..].to_lowercase().parse(), Ok(signal));
            assert_eq!(number.to_string().parse(), Ok(signal));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_quotes_it() {
        for text in ["", "SIG", "TERMINATE", "0", "-9", "65", "9999999999"] {
            let error = text.parse::<Signal>().unwrap_err();
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
        }
    }
}
