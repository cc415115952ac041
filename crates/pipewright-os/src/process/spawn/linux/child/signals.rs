//! The child's signals: its mask and its handlers.

use std::ptr;

/// Returns true if a signal that stops is pending.
pub(super) fn is_stop_pending() -> bool {
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a live set.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return false;
    }
    [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].into_iter().any(|signal| {
        // SAFETY: filled in by the call above.
        unsafe { libc::sigismember(pending.as_ptr(), signal) == 1 }
    })
}

/// Sets the mask of blocked signals; `None` is an empty one.
pub(super) fn set_mask(mask: Option<&libc::sigset_t>) {
    match mask {
        Some(mask) => set_mask_to(mask),
        None => set_mask_to(&filled_by(libc::sigemptyset)),
    }
}

pub(super) fn block_all() {
    set_mask_to(&filled_by(libc::sigfillset));
}

fn filled_by(fill: unsafe extern "C" fn(*mut libc::sigset_t) -> libc::c_int) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both functions passed here write the whole set. The full set lacks the C library's own
    // signals, which are never sent to a child.
    unsafe { fill(set.as_mut_ptr()) };
    // SAFETY: written by the call above.
    unsafe { set.assume_init() }
}

fn set_mask_to(mask: &libc::sigset_t) {
    // SAFETY: a live set; SIG_SETMASK with it has no error, and takes no lock.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// The kernel's struct sigaction. It begins with the handler, and SIG_DFL with no flags is all zeroes.
type KernelAction = [usize; 8];

/// The size of the kernel's signal sets, which have 64 bits.
const SIGSET_BYTES: usize = 8;

/// The action of a signal in a process that continues: restored on drop.
pub(super) struct RestoreAction {
    signal: libc::c_int,
    action: Option<KernelAction>,
}

impl RestoreAction {
    pub(super) fn new(signal: libc::c_int) -> RestoreAction {
        RestoreAction { signal, action: action_of(signal) }
    }
}

impl Drop for RestoreAction {
    fn drop(&mut self) {
        if let Some(action) = &self.action {
            // SAFETY: as the kernel returned it, with all that belongs to a function.
            unsafe { set(self.signal, action) };
        }
    }
}

/// Returns the handler of a signal; `None` for a signal without one.
fn handler_of(signal: libc::c_int) -> Option<libc::sighandler_t> {
    action_of(signal).map(|[handler, ..]| handler)
}

fn action_of(signal: libc::c_int) -> Option<KernelAction> {
    let mut now: KernelAction = [0; 8];
    // Raw calls: the C library's may lock.
    // SAFETY: reads only, into an array that is larger than the kernel's struct.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<KernelAction>(),
            now.as_mut_ptr(),
            SIGSET_BYTES,
        )
    };
    (result == 0).then_some(now)
}

pub(super) fn set_default(signal: libc::c_int) {
    set_handler(signal, libc::SIG_DFL);
}

pub(super) fn ignore(signal: libc::c_int) {
    set_handler(signal, libc::SIG_IGN);
}

fn set_handler(signal: libc::c_int, handler: libc::sighandler_t) {
    let mut action: KernelAction = [0; 8];
    action[0] = handler;
    // SAFETY: neither of the two values passed here is a function.
    unsafe { set(signal, &action) };
}

/// Sets the action of a signal.
///
/// # Safety
/// A function in it must be a signal handler, with the flags that the kernel requires with it.
unsafe fn set(signal: libc::c_int, action: &KernelAction) {
    // SAFETY: a live action, valid as the caller of this function guarantees.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            ptr::null_mut::<KernelAction>(),
            SIGSET_BYTES,
        )
    };
}

/// Resets all handlers: one of the parent's would run in a second process that shares its memory.
pub(super) fn reset_handlers() {
    for signal in 1..=64 {
        let handler = handler_of(signal);
        if handler.is_some_and(|it| it != libc::SIG_DFL && it != libc::SIG_IGN) {
            set_default(signal);
        }
    }
}
