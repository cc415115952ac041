//! The handler of signals that raise latches.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::super::signal_latches::{self, Delivery};
use crate::base::signal::{Signal, is_ignored};

/// The effects that the signals had before, each at the index of its number.
static PREVIOUS: [Previous; 65] = [const { Previous(UnsafeCell::new(MaybeUninit::zeroed())) }; 65];

struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: an element is written under the lock of the registrations, before its signal has one, and
// read while it has one: by the holder of the lock, or by a handler whose end the writer has waited
// for.
unsafe impl Sync for Previous {}

/// Returns true if the signal can be handled: it is not ignored.
pub(in super::super) fn can_arrive(signal: Signal) -> io::Result<bool> {
    if matches!(signal, Signal::KILL | Signal::STOP) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    is_ignored(signal).map(|is_ignored| !is_ignored)
}

/// Records the current effect of the signal. Called before any registration handles it.
pub(in super::super) fn record_previous(signal: Signal) -> io::Result<()> {
    let Some(before) = element(signal.number()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: only queries, into an element that is not read yet.
    match unsafe { libc::sigaction(signal.number(), ptr::null(), before.cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Installs the handler.
pub(in super::super) fn install(signal: Signal) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a valid value: the default, no flags, an empty set.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
    // Restarts the system calls that permit it. Others return EINTR, as with every handler.
    action.sa_flags = libc::SA_RESTART;
    // No other handler interrupts this one.
    // SAFETY: a live set.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handler is async-signal-safe: it takes no lock, uses no allocator, and preserves
    // errno.
    match unsafe { libc::sigaction(signal.number(), &raw const *action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restores the recorded effect if the handler is still ours.
pub(in super::super) fn restore(signal: Signal) {
    if current(signal.number()) == on_signal as *const () as libc::sighandler_t {
        reinstall(signal.number());
    }
}

/// Returns the handler that the signal has now.
fn current(number: i32) -> libc::sighandler_t {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // Ignored, here and below: the number was valid when the handler was installed.
    // SAFETY: only queries, into a live struct.
    let _ = unsafe { libc::sigaction(number, ptr::null(), now.as_mut_ptr()) };
    // SAFETY: initialized by the call; and all zeroes was a valid value before.
    unsafe { now.assume_init() }.sa_sigaction
}

fn element(number: i32) -> Option<*mut MaybeUninit<libc::sigaction>> {
    let index = usize::try_from(number).ok()?;
    PREVIOUS.get(index).map(|before| before.0.get())
}

fn reinstall(number: i32) {
    if let Some(before) = element(number) {
        // SAFETY: written by `record_previous`, which is not called while a registration handles the
        // signal.
        let _ = unsafe { libc::sigaction(number, before.cast(), ptr::null_mut()) };
    }
}

/// Handles a signal. The system calls it between any two instructions of any thread.
extern "C" fn on_signal(number: libc::c_int) {
    let errno = errno();
    // SAFETY: the errno of the calling thread, which lives as long as the thread.
    let before = unsafe { *errno };
    let takes_previous_effect = match signal_latches::deliver(number, || reinstall(number)) {
        Delivery::Handled => false,
        Delivery::Exhausted => true,
        // The signal was on its way when the registration was dropped. Or a handler installed after
        // ours forwards it: a raise would come back here for ever.
        Delivery::Unhandled => current(number) == libc::SIG_DFL,
    };
    if takes_previous_effect {
        // Takes effect when this returns: the signal is blocked until then. Ignored: the number is
        // valid.
        // SAFETY: an integer argument.
        let _ = unsafe { libc::raise(number) };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_os = "linux")]
fn errno() -> *mut libc::c_int {
    // SAFETY: no argument.
    unsafe { libc::__errno_location() }
}

#[cfg(target_os = "macos")]
fn errno() -> *mut libc::c_int {
    // SAFETY: no argument.
    unsafe { libc::__error() }
}
