//! Blocks signals, and takes them with calls that wait for them.

mod handler;
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod ready;
#[cfg(any(test, not(target_os = "linux")))]
mod sigwait_thread;

use std::fmt;
#[cfg(all(feature = "tokio", not(target_os = "linux")))]
use std::future::poll_fn;
use std::io;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::Instant;

use super::ArrivedSignal;
use crate::base::signal::{Signal, empty_set, is_ignored};
#[cfg(all(feature = "tokio", not(target_os = "linux")))]
use crate::base::wait::{Slot, Watch};
pub(super) use handler::{can_arrive, install, record_previous, restore};
#[cfg(all(feature = "tokio", target_os = "linux"))]
use ready::Ready;
#[cfg(not(target_os = "linux"))]
use sigwait_thread::SigwaitThread;

pub(super) struct Caught {
    #[cfg(target_os = "linux")]
    set: libc::sigset_t,
    is_empty: bool,
    #[cfg(not(target_os = "linux"))]
    thread: SigwaitThread,
}

impl Caught {
    pub(super) fn new(signals: &[Signal]) -> io::Result<Caught> {
        let (mut set, mut numbers) = (empty_set(), Vec::new());
        for signal in signals {
            if is_ignored(*signal)? {
                continue;
            }
            // SAFETY: a live set.
            if unsafe { libc::sigaddset(&raw mut set, signal.number()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // They cannot be caught (sigprocmask(2)).
            if !matches!(*signal, Signal::KILL | Signal::STOP) {
                numbers.push(signal.number());
            }
        }
        // SAFETY: a live set, and no pointer for the old one.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Caught {
            is_empty: numbers.is_empty(),
            #[cfg(target_os = "linux")]
            set,
            #[cfg(not(target_os = "linux"))]
            thread: SigwaitThread::new(&numbers)?,
        })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn wait(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        arrived(wait_for_one_of(&self.set)?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait(&self) -> io::Result<ArrivedSignal> {
        loop {
            if let Some(arrived) = self.wait_until(None)? {
                return Ok(arrived);
            }
        }
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
        self.thread
            .wait_until(until)?
            .map(|number| arrived((number, sender_of(number))))
            .transpose()
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
    pub(super) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let ready = Ready::new(&self.set)?.register()?;
        loop {
            // Taken last: no await follows in which it could be dropped.
            if let Some(arrived) = self.take()? {
                return Ok(arrived);
            }
            let mut guard = ready.readable().await?;
            guard.clear_ready();
        }
    }

    #[cfg(all(feature = "tokio", not(target_os = "linux")))]
    pub(super) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let mut watch = Watch::default();
        loop {
            // Taken last: no await follows in which it could be dropped.
            self.thread.wake().lower();
            if let Some(number) = self.thread.take() {
                return arrived((number, sender_of(number)));
            }
            let mut slots = [Slot::Event(self.thread.wake())];
            poll_fn(|cx| watch.poll_wait(cx, &mut slots, None)).await?;
        }
    }

    /// Returns an error if the set is empty: sigwait on it would wait for ever.
    fn check(&self) -> io::Result<()> {
        if self.is_empty { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
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

/// Returns the sender, which macOS does not tell. Ctrl-C, Ctrl-\ and Ctrl-Z reach the whole group in the foreground of the terminal: with
/// such a signal passed on, a command in this process's group would get each twice.
#[cfg(not(target_os = "linux"))]
fn sender_of(number: i32) -> Sender {
    if is_typed(number, is_in_foreground) { Sender::Kernel } else { Sender::Unknown }
}

#[cfg(any(test, not(target_os = "linux")))]
fn is_typed(number: i32, is_in_foreground: impl FnOnce() -> bool) -> bool {
    matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP) && is_in_foreground()
}

/// Returns true if this process's group has its terminal. An error is no.
#[cfg(any(test, not(target_os = "linux")))]
fn is_in_foreground() -> bool {
    use std::os::fd::AsRawFd as _;
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    // SAFETY: an open file.
    let foreground = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
    foreground == rustix::process::getpgrp().as_raw_nonzero().get()
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

#[cfg(not(target_os = "linux"))]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, Sender)> {
    let mut number = 0;
    // SAFETY: a live set and a live integer.
    match unsafe { libc::sigwait(set, &raw mut number) } {
        0 => Ok((number, Sender::Unknown)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn only_signals_of_keys_are_typed_and_only_in_the_foreground() {
        for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
            assert!(is_typed(number, || true));
            assert!(!is_typed(number, || false));
        }
        for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            assert!(!is_typed(number, || true));
        }
        // Either may be true here; it neither fails nor waits.
        let _ = is_in_foreground();
    }
}
