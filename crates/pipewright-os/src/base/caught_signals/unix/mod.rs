//! Blocks signals, and takes them with calls that wait for them.

mod handler;
#[cfg(any(feature = "tokio", not(target_os = "linux")))]
mod ready;

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use super::ArrivedSignal;
use crate::base::signal::{Signal, empty_set, is_ignored};
pub(super) use handler::{can_arrive, install, record_previous, restore};
#[cfg(any(feature = "tokio", not(target_os = "linux")))]
use ready::Ready;

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
        // SAFETY: a live set, and no pointer for the old one.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const caught.set, std::ptr::null_mut())
        };
        if error == 0 { Ok(caught) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    pub(super) fn wait(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        arrived(wait_for_one_of(&self.set)?)
    }

    /// Needs no descriptor and no memory: a caller that could not wait would keep no time, and take no signal.
    #[cfg(target_os = "linux")]
    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<ArrivedSignal>> {
        let Some(until) = until else { return self.wait().map(Some) };
        self.check()?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(taken) = take_one_of(&self.set, left)? {
                return arrived(taken).map(Some);
            }
            // Otherwise the signal of another handler has ended the wait.
            if until <= Instant::now() {
                return Ok(None);
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<ArrivedSignal>> {
        self.check()?;
        if let Some(arrived) = self.take()? {
            return Ok(Some(arrived));
        }
        let ready = Ready::new(&self.set)?;
        loop {
            // Again, now that the handle exists: it need not report earlier arrivals.
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
    pub(super) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let ready = Ready::new(&self.set)?.register()?;
        loop {
            // Taken last: no await follows in which it could be dropped.
            if let Some(arrived) = self.take()? {
                return Ok(arrived);
            }
            let mut guard = ready.readable().await?;
            guard.get_inner().lower();
            guard.clear_ready();
        }
    }

    /// Returns an error if the set is empty: sigwait on it would wait for ever.
    fn check(&self) -> io::Result<()> {
        if self.is_empty { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Takes a signal that has arrived.
    #[cfg(any(feature = "tokio", not(target_os = "linux")))]
    fn take(&self) -> io::Result<Option<ArrivedSignal>> {
        take_one_of(&self.set, Duration::ZERO)?.map(arrived).transpose()
    }
}

fn arrived((number, sender): (i32, Sender)) -> io::Result<ArrivedSignal> {
    let signal = Signal::from_number(number).ok_or(io::ErrorKind::InvalidData)?;
    let from_terminal = matches!(sender, Sender::Kernel);
    let from_own_group = matches!(sender, Sender::Process(pid) if is_in_own_group(pid));
    Ok(ArrivedSignal { signal, from_terminal, from_own_group })
}

/// The sender of a signal.
enum Sender {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not known"))]
    Kernel,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not known"))]
    Process(i32),
    Unknown,
}

impl Sender {
    #[cfg(target_os = "linux")]
    fn of(info: &libc::siginfo_t) -> Sender {
        match info.si_code {
            libc::SI_KERNEL => Sender::Kernel,
            // SAFETY: a signal of kill(2) has the sender.
            libc::SI_USER => Sender::Process(unsafe { info.si_pid() }),
            _ => Sender::Unknown,
        }
    }
}

/// Returns true for another process of this process's group.
fn is_in_own_group(pid: i32) -> bool {
    let Some(sender) = rustix::process::Pid::from_raw(pid) else { return false };
    let own = rustix::process::getpgrp();
    sender != rustix::process::getpid()
        && rustix::process::getpgid(Some(sender)).is_ok_and(|group| group == own)
}

impl fmt::Debug for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caught").field("is_empty", &self.is_empty).finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, Sender)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: a live set, and room for the result.
        let number = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if number > 0 {
            // SAFETY: initialized by the call; and all zeroes was a valid value before.
            let info = unsafe { info.assume_init() };
            return Ok((number, Sender::of(&info)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes a signal that arrives within that time. `None`: none has, or the wait was interrupted.
#[cfg(target_os = "linux")]
fn take_one_of(set: &libc::sigset_t, limit: Duration) -> io::Result<Option<(i32, Sender)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let limit = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: a live set, room for the result, and a live time.
    let number = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const limit) };
    if number > 0 {
        // SAFETY: initialized by the call; and all zeroes was a valid value before.
        let info = unsafe { info.assume_init() };
        return Ok(Some((number, Sender::of(&info))));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Takes a pending signal. Another thread that waits for it may take it in between: then this waits
/// for the next one.
#[cfg(not(target_os = "linux"))]
fn take_one_of(set: &libc::sigset_t, _: Duration) -> io::Result<Option<(i32, Sender)>> {
    let mut pending = empty_set();
    // SAFETY: a live set.
    if unsafe { libc::sigpending(&raw mut pending) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_in = |set: &libc::sigset_t, number| {
        // SAFETY: a live set; a number that is no signal's is in no set.
        unsafe { libc::sigismember(set, number) == 1 }
    };
    match (1..=Signal::LAST).any(|number| is_in(set, number) && is_in(&pending, number)) {
        true => wait_for_one_of(set).map(Some),
        false => Ok(None),
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, Sender)> {
    let mut number = 0;
    // SAFETY: a live set and a live integer.
    match unsafe { libc::sigwait(set, &raw mut number) } {
        0 => Ok((number, Sender::Unknown)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
