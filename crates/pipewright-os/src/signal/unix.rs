//! The numbers are libc's: they differ between Linux and macOS.

pub(super) use libc::{
    SIGABRT as ABRT, SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT, SIGKILL as KILL,
    SIGPIPE as PIPE, SIGQUIT as QUIT, SIGSTOP as STOP, SIGTERM as TERM, SIGUSR1 as USR1,
    SIGUSR2 as USR2,
};

/// The highest signal number: 64 on Linux (signal(7)), 31 on macOS.
pub(super) const LAST: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

macro_rules! names {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

#[rustfmt::skip]
pub(super) const NAMES: &[(&str, i32)] = names!(
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
    SIGPIPE SIGALRM SIGTERM SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU
    SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGSYS
);
