//! A slot that holds the tree of one child after another.

use std::fmt;
use std::sync::Arc;

use super::{Plan, SpawnError};
use crate::base::wake::{EventSource, WaitEvent};
use crate::process::child::{ChildHandle, Containment};

/// A holder of process trees, one at a time.
///
/// The holder of the trees is made once, and a start in the slot costs little more than one that is not contained.
/// Nothing of one tree is left when the next child starts, and each tree ends with this process, however that ends.
///
/// # Platform
/// Linux: a supervisor and its guard, which run as long as the slot. The supervisor starts the children at this
/// process's request (a `SOCK_SEQPACKET` socket with `SCM_RIGHTS`, and a memory that both share), and so is their
/// parent. If one of the two is killed, the tree is killed, and the next start makes new ones. macOS: `Unsupported`.
/// Windows: a job object, as for [`Contain::tree`](super::Contain::tree), in which the children are born.
///
/// # Drop
/// Ends what holds the trees, unless a tree is in use. Then that happens when its [`ChildHandle`] is dropped.
#[derive(Clone)]
pub struct TreeSlot(pub(super) Arc<dyn Slot>);

/// A slot of the current system. A trait object, so that programs without slots do not contain their code.
pub(crate) trait Slot: fmt::Debug + Send + Sync {
    fn begin(self: Arc<Self>, plan: &Plan<'_>) -> Result<Begun, SpawnError>;

    fn containment(&self) -> Containment;

    /// Returns true if no process of the last tree is left.
    fn is_free(&self) -> bool;
}

/// A start that has begun.
#[derive(Debug)]
pub enum Begun {
    /// The child has been started.
    Started(ChildHandle),
    /// Another process starts the child, and has not answered yet.
    Requested(RequestedStart),
}

impl Begun {
    /// Waits for the result of the start. The plan must be the one that it began with.
    ///
    /// # Errors
    /// As for [`spawn`](super::spawn).
    pub fn finish(self, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
        match self {
            Begun::Started(child) => Ok(child),
            Begun::Requested(start) => start.finish(plan),
        }
    }
}

/// A start that another process has been asked for. As an event, it happens when [`finish`](Self::finish) would not
/// wait.
///
/// # Drop
/// Waits a moment for the result of the start. A child that has been started is killed, and its tree. Without a result,
/// what was asked is ended, as by [`end`](Self::end).
pub struct RequestedStart(pub(crate) Box<dyn Requested>);

/// A requested start of the current system. A trait object, for the same reason as [`Slot`].
pub(crate) trait Requested: WaitEvent {
    fn finish(self: Box<Self>, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError>;

    fn end(&mut self);
}

impl RequestedStart {
    /// Waits for the result of the start. The plan must be the one that it began with.
    ///
    /// # Errors
    /// As for [`spawn`](super::spawn).
    pub fn finish(self, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
        self.0.finish(plan)
    }

    /// Kills what was asked for the start, and the child with it, whose program or directory may be on a mount that
    /// does not answer. The event happens once both have ended, which takes a second. It never happens if the kernel
    /// cannot end them.
    pub fn end(&mut self) {
        self.0.end();
    }
}

impl WaitEvent for RequestedStart {
    fn source(&self) -> EventSource<'_> {
        self.0.source()
    }

    fn has_happened(&self) -> bool {
        self.0.has_happened()
    }
}

impl fmt::Debug for RequestedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestedStart").finish_non_exhaustive()
    }
}

impl TreeSlot {
    /// Creates a slot. `reap` gets a process of this library that has not ended in time, and reaps it.
    ///
    /// # Errors
    /// `Unsupported`: this machine has nothing that ends a tree with this process. Or there is no room for a process
    /// or a handle.
    pub fn new(reap: fn(ChildHandle)) -> Result<TreeSlot, SpawnError> {
        super::imp::new_slot(reap)
    }

    /// Returns true if another child can start: no process of the last tree is known to be left. Does not wait.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.0.is_free()
    }

    /// Returns the way in which the trees are contained.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment()
    }
}

impl fmt::Debug for TreeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
