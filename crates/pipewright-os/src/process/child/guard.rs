//! The end of a guard: a process that outlives this one, and kills a child, or a child's group, when we
//! have ended. `spawn` starts it.

use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The target of a guard's kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The child, by its number: until it is told that the child has ended.
    Child,
    /// The group that the child leads. The guard is in it, so that the number of the group is taken
    /// for as long as there is a guard to kill it.
    Group,
}

/// Our end of the pipe.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Taken out when it is to stay open for ever.
    lifeline: Option<OwnedFd>,
    whom: Whom,
    is_over: AtomicBool,
}

impl Guard {
    /// Takes our end of the pipe of a guard that is in place.
    pub(crate) fn new(lifeline: OwnedFd, whom: Whom) -> Guard {
        Guard { lifeline: Some(lifeline), whom, is_over: AtomicBool::new(false) }
    }

    /// The child has ended, and its number is about to be free. A group may have others in it.
    pub(crate) fn is_over(&self) {
        let Some(lifeline) = self.lifeline.as_ref().filter(|_| self.whom == Whom::Child) else {
            return;
        };
        if !self.is_over.swap(true, Ordering::SeqCst) {
            // Ignored: somebody has killed the guard. There is room for a byte in an empty pipe.
            let _ = rustix::io::write(lifeline, b"\n");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A group ends with the handle on its child, as every tree that is held does.
        if self.whom == Whom::Child && !self.is_over.load(Ordering::SeqCst) {
            // A child that is given up runs on, and still ends with us: so this stays open as long
            // as we live.
            let _ = self.lifeline.take().map(IntoRawFd::into_raw_fd);
        }
    }
}
