//! A slot that holds the tree of one child after another.

use std::fmt;
use std::sync::Arc;

use super::{Plan, SpawnError};
use crate::process::child::{ChildHandle, Containment};

/// A holder of process trees, one at a time.
///
/// The holder of the trees is made once, and a start in the slot costs little more than one that is not contained. Nothing
/// of one tree is left when the next child starts, and each tree ends with this process, however that ends.
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
    fn start(&self, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError>;

    fn containment(&self) -> Containment;
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
