//! Keeps this process dumpable while children change their user.
//!
//! A change of user makes a process undumpable (prctl(2), PR_SET_DUMPABLE). That flag belongs to the
//! memory, which a child still shares with this process. Without this module, the first child that gets
//! another user would end this process's core dumps and make root the owner of its `/proc/self`.
//!
//! The flag is restored when no child shares the memory any more, and not before: another user
//! could trace a child that runs as that user, and so read this process's memory. A start that hangs delays
//! the restoration of the flag, but no other start.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::generation::PerProcess;
use crate::process::procfs;

static STARTS: PerProcess<Mutex<Starts>> = PerProcess::new(|| Mutex::new(Starts::NONE));

/// The starts in progress.
struct Starts {
    count: usize,
    /// The flag before the first of them.
    was_dumpable: bool,
}

impl Starts {
    const NONE: Starts = Starts { count: 0, was_dumpable: false };

    fn begin(&mut self, flag: impl FnOnce() -> Flag) {
        if self.count == 0 {
            self.was_dumpable = flag() == DUMPABLE;
        }
        self.count += 1;
    }

    /// Ends a start. Returns true if the flag has to be restored.
    fn end(
        &mut self,
        flag: impl FnOnce() -> Flag,
        is_by_change_of_user: impl FnOnce(Flag) -> bool,
    ) -> bool {
        self.count = self.count.saturating_sub(1);
        if self.count > 0 || !self.was_dumpable {
            return false;
        }
        match flag() {
            DUMPABLE => false,
            // If a change of user gives another value, other code of this program has set it.
            flag => is_by_change_of_user(flag),
        }
    }
}

/// A value of `PR_GET_DUMPABLE`.
type Flag = i32;

const DUMPABLE: Flag = 1;

/// A start in progress. The drop of the last one restores the flag.
pub(super) struct DumpableGuard(());

impl DumpableGuard {
    pub(super) fn new() -> DumpableGuard {
        starts().begin(flag);
        DumpableGuard(())
    }
}

impl Drop for DumpableGuard {
    fn drop(&mut self) {
        // By now the child has its own memory, or has ended. Under the lock, because the next start has to
        // find the original flag.
        let mut starts = starts();
        if starts.end(flag, is_by_change_of_user) {
            // SAFETY: numbers; 1 is always allowed.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, DUMPABLE) };
        }
    }
}

/// Locks the starts, for a few calls only, never for a whole start.
fn starts() -> MutexGuard<'static, Starts> {
    STARTS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag() -> Flag {
    // SAFETY: reads only.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

/// Returns true if a change of user sets the flag to that value. The value is `fs.suid_dumpable`: 0, or 2
/// if a collector of core dumps has set that. It is read again only if the flag differs from the last one.
fn is_by_change_of_user(flag: Flag) -> bool {
    static LAST: AtomicI32 = AtomicI32::new(-1);
    if LAST.load(Ordering::Relaxed) == flag {
        return true;
    }
    let Ok(text) = procfs::read("/proc/sys/fs/suid_dumpable") else {
        // The default; read again next time.
        return flag == 0;
    };
    let number = procfs::words(&text).next().and_then(procfs::number);
    let now = number.and_then(|number| Flag::try_from(number).ok()).unwrap_or(0);
    LAST.store(now, Ordering::Relaxed);
    now == flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_start_restores_the_dumpable_flag() {
        let mut starts = Starts::NONE;
        starts.begin(|| DUMPABLE);
        // The first one's change of user has made it undumpable.
        starts.begin(|| unreachable!("asked once"));
        assert!(!starts.end(|| 0, |flag| flag == 0), "the other one's child shares the memory");
        assert!(starts.end(|| 0, |flag| flag == 0));
        starts.begin(|| 0);
        assert!(!starts.end(|| 0, |flag| flag == 0), "it was not dumpable before");
    }

    #[test]
    fn a_flag_set_by_other_code_is_kept() {
        let mut starts = Starts::NONE;
        starts.begin(|| DUMPABLE);
        assert!(!starts.end(|| 0, |flag| flag == 2), "a change of user would have made it 2");
        starts.begin(|| DUMPABLE);
        assert!(starts.end(|| 2, |flag| flag == 2));
        starts.begin(|| DUMPABLE);
        assert!(!starts.end(|| DUMPABLE, |flag| flag == 0), "no child has changed its user");
    }
}
