//! The host's end of a guard: a process that outlives this one, and kills a child, or a child's group, when
//! this process has ended. `spawn` starts it.

use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The target of a guard's kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardTarget {
    /// The child, by its number, until the guard is informed that the child has ended.
    Child,
    /// The group that the child leads. The guard is in it, so that the number of the group stays taken as
    /// long as there is a guard to kill it.
    Group,
}

/// This process's end of the pipe.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The pipe; taken out when it has to stay open for ever.
    pipe: Option<OwnedFd>,
    target: GuardTarget,
    child_ended: AtomicBool,
}

impl Guard {
    /// Takes this process's end of the pipe of a guard that runs.
    pub(crate) fn new(pipe: OwnedFd, target: GuardTarget) -> Guard {
        Guard { pipe: Some(pipe), target, child_ended: AtomicBool::new(false) }
    }

    /// Informs the guard of a child that the child has ended and that its number is about to be free. Does
    /// nothing for a group, which may have other members.
    pub(crate) fn notify_ended(&self) {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.target == GuardTarget::Child) else {
            return;
        };
        if !self.child_ended.swap(true, Ordering::SeqCst) {
            // Ignored: another process has killed the guard. An empty pipe has room for a byte.
            let _ = rustix::io::write(pipe, b"\n");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A group ends with the handle of its child, as every contained tree does.
        if self.target == GuardTarget::Child && !self.child_ended.load(Ordering::SeqCst) {
            // A child whose handle is dropped continues to run, and still has to end with this process. So
            // the pipe stays open as long as this process lives.
            let _ = self.pipe.take().map(IntoRawFd::into_raw_fd);
        }
    }
}
