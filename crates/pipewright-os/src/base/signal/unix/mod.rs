//! The numbers are libc's: they differ between Linux and macOS.

mod handler;
mod ready;

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::time::Instant;

use super::{Arrived, Signal};
pub(super) use handler::{can_come, install, prepare, restore};
use ready::Ready;

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

pub(super) struct Caught {
    set: libc::sigset_t,
    is_empty: bool,
}

impl Caught {
    pub(super) fn new(signals: &[Signal]) -> io::Result<Caught> {
        let mut caught = Caught { set: empty_set(), is_empty: true };
        for signal in signals {
            if is_ignored(*signal)? {
                continue;
            }
            // SAFETY: a live set.
            if unsafe { libc::sigaddset(&raw mut caught.set, signal.number()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            caught.is_empty = false;
        }
        // SAFETY: a live set, and no place for the old one.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const caught.set, std::ptr::null_mut())
        };
        if error == 0 { Ok(caught) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    pub(super) fn wait(&self) -> io::Result<Arrived> {
        self.check()?;
        arrived(wait_for_one_of(&self.set)?)
    }

    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<Arrived>> {
        self.check()?;
        if let Some(arrived) = self.take()? {
            return Ok(Some(arrived));
        }
        let ready = Ready::new(&self.set)?;
        loop {
            // Looked at after the handle is there: it need not tell of what came before.
            if let Some(arrived) = self.take()? {
                return Ok(Some(arrived));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            ready.wait(until)?;
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) async fn wait_async(&self) -> io::Result<Arrived> {
        self.check()?;
        let ready = Ready::new(&self.set)?.register()?;
        loop {
            // Taken last: nothing is awaited after it that could be dropped.
            if let Some(arrived) = self.take()? {
                return Ok(arrived);
            }
            let mut guard = ready.readable().await?;
            guard.get_inner().lower();
            guard.clear_ready();
        }
    }

    /// sigwait on nothing would wait for ever.
    fn check(&self) -> io::Result<()> {
        if self.is_empty { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Takes one that has come.
    fn take(&self) -> io::Result<Option<Arrived>> {
        take_one_of(&self.set)?.map(arrived).transpose()
    }
}

fn arrived((number, from_terminal): (i32, bool)) -> io::Result<Arrived> {
    let signal = Signal::from_number(number).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Arrived { signal, from_terminal })
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills what it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled by the call above.
    unsafe { set.assume_init() }
}

#[cfg(target_os = "linux")]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, bool)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: a live set, and room for what the call tells.
        let number = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if number > 0 {
            // SAFETY: the call has filled it in; and all zeroes was a value before.
            let info = unsafe { info.assume_init() };
            return Ok((number, info.si_code == libc::SI_KERNEL));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(target_os = "linux")]
fn take_one_of(set: &libc::sigset_t) -> io::Result<Option<(i32, bool)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        // SAFETY: a live set, room for what the call tells, and a live time.
        let number = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const now) };
        if number > 0 {
            // SAFETY: the call has filled it in; and all zeroes was a value before.
            let info = unsafe { info.assume_init() };
            return Ok(Some((number, info.si_code == libc::SI_KERNEL)));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

/// Another thread that waits for the same signal may take it in between: then this waits for the next.
#[cfg(not(target_os = "linux"))]
fn take_one_of(set: &libc::sigset_t) -> io::Result<Option<(i32, bool)>> {
    let mut pending = empty_set();
    // SAFETY: a live set.
    if unsafe { libc::sigpending(&raw mut pending) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_in = |set: &libc::sigset_t, number| {
        // SAFETY: a live set; a number that is none is in none.
        unsafe { libc::sigismember(set, number) == 1 }
    };
    match (1..=LAST).any(|number| is_in(set, number) && is_in(&pending, number)) {
        true => wait_for_one_of(set).map(Some),
        false => Ok(None),
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, bool)> {
    let mut number = 0;
    // SAFETY: a live set and a live number.
    match unsafe { libc::sigwait(set, &raw mut number) } {
        0 => Ok((number, false)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only, into a live struct.
    if unsafe { libc::sigaction(signal.number(), std::ptr::null(), now.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call.
    Ok(unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

impl fmt::Debug for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caught").field("is_empty", &self.is_empty).finish_non_exhaustive()
    }
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
