//! The numbers are libc's: they differ between Linux and macOS.

use std::io;
use std::mem::MaybeUninit;

use super::Signal;

pub(super) use libc::{
    SIGABRT as ABRT, SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT, SIGKILL as KILL,
    SIGPIPE as PIPE, SIGQUIT as QUIT, SIGSTOP as STOP, SIGTERM as TERM, SIGTSTP as TSTP,
    SIGUSR1 as USR1, SIGUSR2 as USR2,
};

/// The highest signal number: 64 on Linux (signal(7)), 31 on macOS.
pub(super) const LAST: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

/// The names in one text: a list of them would be a pointer for each, which takes three times its
/// place for the loader.
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

/// The signals that have names.
pub(super) fn named() -> impl Iterator<Item = (&'static str, i32)> {
    NAMES.split(' ').zip(NUMBERS.iter().copied())
}

/// Returns a set without any signal.
pub(crate) fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills what it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled by the call above.
    unsafe { set.assume_init() }
}

/// Returns true if the signal is ignored at the moment.
pub(crate) fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, into a live struct.
    if unsafe { libc::sigaction(signal.number(), std::ptr::null(), now.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// The signals that this thread had blocked, which it blocks again when this is dropped.
struct MaskBefore(libc::sigset_t);

impl MaskBefore {
    /// Blocks or unblocks a set.
    fn change(how: libc::c_int, set: &libc::sigset_t) -> MaskBefore {
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both are live; with one of its three ways the call has no error.
        unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
        // SAFETY: the call has written it.
        MaskBefore(unsafe { before.assume_init() })
    }
}

impl Drop for MaskBefore {
    fn drop(&mut self) {
        // SAFETY: the mask came from the same call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Returns the signals that this thread blocks.
#[cfg(feature = "process")]
pub(crate) fn mask_now() -> libc::sigset_t {
    let mut now = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: asks only, into a live set; it has no error.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: the call has written it.
    unsafe { now.assume_init() }
}

/// Blocks every signal in this thread that a program can block, and puts its mask back when dropped.
///
/// The C library keeps the two or three for itself by which it cancels threads and changes their users
/// (`sigfillset` leaves them out). It sends those to threads that it knows, and so to no child of ours.
pub(crate) struct AllBlocked(#[expect(dead_code, reason = "held for its drop")] MaskBefore);

impl AllBlocked {
    pub(crate) fn new() -> AllBlocked {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset writes all of what it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: filled by the call above.
        let all = unsafe { all.assume_init() };
        AllBlocked(MaskBefore::change(libc::SIG_SETMASK, &all))
    }
}

pub(super) fn raise(signal: Signal) {
    let mut set = empty_set();
    // SAFETY: a live set; a number that is none leaves it as it is.
    unsafe { libc::sigaddset(&raw mut set, signal.number()) };
    // SAFETY: always of a thread that is there: this one.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: it is.
    unsafe { libc::pthread_kill(this, signal.number()) };
    drop(MaskBefore::change(libc::SIG_UNBLOCK, &set));
}
