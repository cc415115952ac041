//! Keeps this process dumpable while a child changes its user.
//!
//! A change of user makes a process undumpable (prctl(2), PR_SET_DUMPABLE), and that flag belongs
//! to the memory, which the child still shares with us: without this, the first child that gets
//! another user would end our core dumps and give our `/proc/self` to root.

use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Puts the flag back when dropped. One at a time: two would take each other's value for ours.
pub(super) struct Kept {
    was_dumpable: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Kept {
    pub(super) fn new() -> Kept {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: asks only.
        let was_dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) } == 1;
        Kept { was_dumpable, _turn: turn }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.was_dumpable {
            // The child has its own memory by now, or has ended.
            // SAFETY: numbers; 1 is always allowed.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
        }
    }
}
