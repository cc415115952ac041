//! The child's signals: its mask and its handlers.

use std::ptr;

/// The signals that stop a process.
const STOPS: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The signals that dump core. One for the whole group, such as Ctrl-\, would dump the memory that this process shares with
/// its parent, and before Linux 5.16 end the parent too.
const DUMPS: [libc::c_int; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// The pending signals that must not be delivered to a process in its parent's memory.
pub(super) struct Pending(libc::sigset_t);

impl Pending {
    pub(super) fn now() -> Pending {
        let mut pending = filled_by(libc::sigemptyset);
        // Ignored: then none is known to be pending. SAFETY: a live set.
        unsafe { libc::sigpending(&raw mut pending) };
        Pending(pending)
    }

    fn has(&self, signal: libc::c_int) -> bool {
        // SAFETY: a live set.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }

    /// Returns true if the start has to be repeated.
    pub(super) fn interrupt(&self) -> bool {
        STOPS.into_iter().chain(DUMPS).any(|signal| self.has(signal))
    }

    /// Returns true if one of them would dump core.
    pub(super) fn dump(&self) -> bool {
        let is_default = |signal| handler_of(signal) == Some(libc::SIG_DFL);
        DUMPS.into_iter().any(|signal| self.has(signal) && is_default(signal))
    }
}

/// Makes this process end without a core dump if such a signal arrives after the last look at the pending ones. The exec
/// restores the default. Only for the signals that a terminal or a program sends to a whole group.
pub(super) fn die_without_dump() {
    for signal in [libc::SIGQUIT, libc::SIGABRT] {
        if handler_of(signal) == Some(libc::SIG_DFL) {
            let mut action: KernelAction = [0; 8];
            action[0] = kill_self as extern "C" fn(libc::c_int) as usize;
            if cfg!(target_arch = "x86_64") {
                // The kernel refuses to call a function that has nowhere to return to. This one never returns.
                const SA_RESTORER: usize = 0x0400_0000;
                (action[1], action[2]) = (SA_RESTORER, action[0]);
            }
            // SAFETY: a function that makes system calls only, with the flags that the kernel requires.
            unsafe { set(signal, &action) };
        }
    }
}

/// Ends this process at once, without a dump.
pub(super) extern "C" fn kill_self(_: libc::c_int) {
    loop {
        // SAFETY: no arguments.
        let own = unsafe { libc::syscall(libc::SYS_getpid) };
        // SAFETY: numbers.
        unsafe { libc::syscall(libc::SYS_kill, own, libc::SIGKILL) };
    }
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
