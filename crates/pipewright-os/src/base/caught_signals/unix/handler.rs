//! The handler of signals that raise latches.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::super::trip::{self, Delivered};
use crate::base::signal::{Signal, is_ignored};

/// The effects that signals had before, each in the place of its number.
static BEFORE: [Before; 65] = [const { Before(UnsafeCell::new(MaybeUninit::zeroed())) }; 65];

struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: a place is written under the lock of the trips, before any trip wants its signal, and read
// while one does: by the lock's holder, or by a handler that this writer has waited for.
unsafe impl Sync for Before {}

/// Whether a trip can want it: it is not ignored.
pub(in super::super) fn can_come(signal: Signal) -> io::Result<bool> {
    if matches!(signal, Signal::KILL | Signal::STOP) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    is_ignored(signal).map(|is_ignored| !is_ignored)
}

/// Records the effect that the signal has. Called before any trip wants it.
pub(in super::super) fn prepare(signal: Signal) -> io::Result<()> {
    let Some(before) = place(signal.number()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: asks only, into a place that nobody reads yet.
    match unsafe { libc::sigaction(signal.number(), ptr::null(), before.cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the handler in.
pub(in super::super) fn install(signal: Signal) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a value: the default, no flags, an empty set.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
    // Calls that can be are begun again. Others see EINTR, as with every handler.
    action.sa_flags = libc::SA_RESTART;
    // No other handler interrupts this one.
    // SAFETY: a live set.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: the handler does what handlers may: no lock, no memory, and errno as it was.
    match unsafe { libc::sigaction(signal.number(), &raw const *action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the effect back that was recorded, if the handler is still ours.
pub(in super::super) fn restore(signal: Signal) {
    if current(signal.number()) == on_signal as *const () as libc::sighandler_t {
        put_back(signal.number());
    }
}

/// The handler that the signal has now.
fn current(number: i32) -> libc::sighandler_t {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // Ignored, here and below: the number was good when the handler was put in.
    // SAFETY: asks only, into a live struct.
    let _ = unsafe { libc::sigaction(number, ptr::null(), now.as_mut_ptr()) };
    // SAFETY: filled in by the call; and all zeroes was a value before.
    unsafe { now.assume_init() }.sa_sigaction
}

fn place(number: i32) -> Option<*mut MaybeUninit<libc::sigaction>> {
    let index = usize::try_from(number).ok()?;
    BEFORE.get(index).map(|before| before.0.get())
}

fn put_back(number: i32) {
    if let Some(before) = place(number) {
        // SAFETY: written by `prepare`, which nobody calls while a trip wants the signal.
        let _ = unsafe { libc::sigaction(number, before.cast(), ptr::null_mut()) };
    }
}

/// Called by the system, between any two instructions of any thread.
extern "C" fn on_signal(number: libc::c_int) {
    let errno = errno();
    // SAFETY: the number of the calling thread, which lives as long as it runs.
    let before = unsafe { *errno };
    let has_usual_effect = match trip::deliver(number, || put_back(number)) {
        Delivered::Taken => false,
        Delivered::OneTooMany => true,
        // On its way when the guard was dropped. Or another handler, which was put in after ours,
        // passes it on: a raise would come back here for ever.
        Delivered::ToNobody => current(number) == libc::SIG_DFL,
    };
    if has_usual_effect {
        // As soon as this returns: it is blocked until then. Ignored: the number is good.
        // SAFETY: takes a number.
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
