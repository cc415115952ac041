//! Signal names and numbers.

use std::fmt;
use std::str::FromStr;

#[cfg(all(target_os = "macos", feature = "process"))]
pub(crate) use imp::current_mask;
#[cfg(unix)]
pub(crate) use imp::{AllBlocked, empty_set, group_of, is_ignored};

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

/// Makes this process the leader of a process group of its own, with the children that start later. Returns false if
/// this system has no such groups.
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

// The signal numbers of libc, which differ between Linux and macOS.
#[cfg(unix)]
mod imp {
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr;

    use super::Signal;

    pub(super) use libc::{
        SIGABRT as ABRT, SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT, SIGKILL as KILL,
        SIGPIPE as PIPE, SIGQUIT as QUIT, SIGSTOP as STOP, SIGTERM as TERM, SIGTSTP as TSTP,
        SIGUSR1 as USR1, SIGUSR2 as USR2, SIGWINCH as WINCH,
    };

    /// The highest signal number: 64 on Linux (signal(7)), 31 on macOS.
    pub(super) const LAST: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

    /// Stores the names in one string. A list of strings would be a pointer each, which takes three
    /// times the space for the loader.
    macro_rules! names {
        ($($name:ident)*) => {
            const NAMES: &str = concat!($(stringify!($name), " "),*);
            const NUMBERS: &[i32] = &[$(libc::$name),*];
        };
    }

    #[cfg(target_os = "macos")]
    #[rustfmt::skip]
    names!(
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGEMT SIGFPE SIGKILL SIGBUS SIGSEGV SIGSYS
        SIGPIPE SIGALRM SIGTERM SIGURG SIGSTOP SIGTSTP SIGCONT SIGCHLD SIGTTIN SIGTTOU SIGIO SIGXCPU
        SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGINFO SIGUSR1 SIGUSR2
    );

    #[cfg(not(target_os = "macos"))]
    #[rustfmt::skip]
    names!(
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
        SIGPIPE SIGALRM SIGTERM SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU
        SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGSYS
    );

    /// Returns the signals that have names.
    pub(super) fn named() -> impl Iterator<Item = (&'static str, i32)> {
        NAMES.split(' ').zip(NUMBERS.iter().copied())
    }

    /// Returns a set without any signal.
    pub(crate) fn empty_set() -> libc::sigset_t {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initializes the whole set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialized by the call above.
        unsafe { set.assume_init() }
    }

    pub(super) fn lead_own_group() -> bool {
        // Ignored: the leader of a session cannot, and leads its group already.
        let _ = rustix::process::setpgid(None, None);
        true
    }

    /// Returns the group of a process; 0 is this one. `None`: there is no such process, or its group was made outside
    /// of this pid namespace, where it has no number: `unshare --pid` starts the first process of one so.
    ///
    /// The functions of rustix take a group's number for one that is not zero.
    pub(crate) fn group_of(pid: i32) -> Option<i32> {
        // SAFETY: getpgid takes no pointer.
        Some(unsafe { libc::getpgid(pid) }).filter(|group| *group > 0)
    }

    pub(super) fn send_to_own_group(signal: Signal) {
        // SAFETY: kill takes no pointer. It cannot fail: this process is in the group.
        unsafe { libc::kill(0, signal.number()) };
    }

    /// Returns true if the signal is currently ignored.
    pub(crate) fn is_ignored(signal: Signal) -> io::Result<bool> {
        let mut current = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only queries, into a live struct.
        if unsafe { libc::sigaction(signal.number(), std::ptr::null(), current.as_mut_ptr()) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: initialized by the call above.
        Ok(unsafe { current.assume_init() }.sa_sigaction == libc::SIG_IGN)
    }

    /// The signal mask that this thread had before. The drop restores it.
    struct MaskBefore(libc::sigset_t);

    impl MaskBefore {
        /// Blocks or unblocks a set of signals.
        fn change(how: libc::c_int, set: &libc::sigset_t) -> MaskBefore {
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: both sets are live; with one of its three valid `how` values the call cannot
            // fail.
            unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
            // SAFETY: initialized by the call above.
            MaskBefore(unsafe { before.assume_init() })
        }
    }

    impl Drop for MaskBefore {
        fn drop(&mut self) {
            // SAFETY: a live set, which the same call returned earlier.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
            };
        }
    }

    /// Returns the signal mask of this thread.
    #[cfg(all(target_os = "macos", feature = "process"))]
    pub(crate) fn current_mask() -> libc::sigset_t {
        let mut current = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: only queries, into a live set; the call cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), current.as_mut_ptr()) };
        // SAFETY: initialized by the call above.
        unsafe { current.assume_init() }
    }

    /// Blocks every signal that a program can block in this thread. The drop restores the mask.
    ///
    /// The C library reserves two or three signals, with which it cancels threads and changes their
    /// user ids (`sigfillset` leaves them out). It sends those only to threads that it knows, so never
    /// to a child of ours.
    pub(crate) struct AllBlocked(#[expect(dead_code, reason = "held for its drop")] MaskBefore);

    impl AllBlocked {
        pub(crate) fn new() -> AllBlocked {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: sigfillset initializes the whole set.
            unsafe { libc::sigfillset(all.as_mut_ptr()) };
            // SAFETY: initialized by the call above.
            let all = unsafe { all.assume_init() };
            AllBlocked(MaskBefore::change(libc::SIG_SETMASK, &all))
        }
    }

    pub(super) fn stop_ignoring(signal: Signal) {
        // SAFETY: all bytes zero is a valid action.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a live action; a number that is no signal's leaves it unchanged.
        let known = unsafe { libc::sigaction(signal.number(), ptr::null(), &raw mut found) } == 0;
        if known && found.sa_sigaction == libc::SIG_IGN {
            found.sa_sigaction = libc::SIG_DFL;
            // SAFETY: an action without a function.
            unsafe { libc::sigaction(signal.number(), &raw const found, ptr::null_mut()) };
        }
    }

    pub(super) fn raise(signal: Signal) {
        let mut set = empty_set();
        // SAFETY: a live set; a number that is no signal's leaves it unchanged.
        unsafe { libc::sigaddset(&raw mut set, signal.number()) };
        // SAFETY: no arguments.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: the calling thread, which is alive.
        unsafe { libc::pthread_kill(this, signal.number()) };
        drop(MaskBefore::change(libc::SIG_UNBLOCK, &set));
    }
}

// Signals as plain data, under the numbers that they have on nearly every other system.
#[cfg(windows)]
mod imp {
    use super::Signal;

    pub(super) const HUP: i32 = 1;
    pub(super) const INT: i32 = 2;
    pub(super) const QUIT: i32 = 3;
    pub(super) const ABRT: i32 = 6;
    pub(super) const KILL: i32 = 9;
    pub(super) const USR1: i32 = 10;
    pub(super) const USR2: i32 = 12;
    pub(super) const PIPE: i32 = 13;
    pub(super) const TERM: i32 = 15;
    pub(super) const CONT: i32 = 18;
    pub(super) const STOP: i32 = 19;
    pub(super) const TSTP: i32 = 20;
    pub(super) const WINCH: i32 = 28;

    /// The highest signal number.
    pub(super) const LAST: i32 = 31;

    /// The names, in the order of their numbers; `-` stands for a number without a name.
    const NAMES: &str = "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 \
        SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM - SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU \
        SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO - SIGSYS";

    /// Returns the signals that have names.
    pub(super) fn named() -> impl Iterator<Item = (&'static str, i32)> {
        NAMES.split(' ').zip(1..).filter(|(name, _)| *name != "-")
    }

    pub(super) fn raise(_: Signal) {
        // A console event would also reach the other processes of the console.
    }

    pub(super) fn stop_ignoring(_: Signal) {
        // A console program cannot have its parent's signals ignored, except Ctrl-C.
    }

    pub(super) fn lead_own_group() -> bool {
        false
    }

    pub(super) fn send_to_own_group(_: Signal) {
        // There is none.
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_number_has_the_name_that_it_has_elsewhere() {
            let constants = [
                ("SIGHUP", HUP),
                ("SIGINT", INT),
                ("SIGQUIT", QUIT),
                ("SIGABRT", ABRT),
                ("SIGKILL", KILL),
                ("SIGUSR1", USR1),
                ("SIGUSR2", USR2),
                ("SIGPIPE", PIPE),
                ("SIGTERM", TERM),
                ("SIGCONT", CONT),
                ("SIGSTOP", STOP),
                ("SIGTSTP", TSTP),
                ("SIGWINCH", WINCH),
                ("SIGSYS", LAST),
            ];
            for constant in constants {
                assert!(named().any(|named| named == constant), "{constant:?}");
            }
        }
    }
}

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
