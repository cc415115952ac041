//! Signals as plain data, under the numbers that they have on nearly every other system.

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
