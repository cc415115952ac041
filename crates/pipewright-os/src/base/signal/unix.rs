//! The signal numbers of libc, which differ between Linux and macOS.

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

pub(super) fn send_to_own_group(signal: Signal) {
    // SAFETY: kill takes no pointer. It cannot fail: this process is in the group.
    unsafe { libc::kill(0, signal.number()) };
}

/// Returns true if the signal is currently ignored.
pub(crate) fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut current = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries, into a live struct.
    if unsafe { libc::sigaction(signal.number(), std::ptr::null(), current.as_mut_ptr()) } != 0 {
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
