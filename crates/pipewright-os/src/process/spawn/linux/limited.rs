//! Starts a child whose tree has limits.

use std::io;
use std::sync::Arc;

use super::contained::{TreeHolder, can_supervise, start_held};
use super::{Lists, Plan, SpawnError, Step};
use crate::process::child::ChildHandle;
use crate::process::contain::linux::limits::{KeptGroups, LimitedGroups, NotLimited, keep};
use crate::process::limits::TreeLimits;
use crate::process::spawn::BadInput;
use crate::process::spawn::layout::Layout;

/// Starts a contained child with the limits of the plan.
pub(crate) fn start_limited(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let limits = plan.limits.copied().unwrap_or_default();
    check(&limits)?;
    let layout = &Layout::new(plan)?;
    let lists = &Lists::of(plan)?;
    if ends_with_parent {
        can_supervise(plan)?;
    }
    let LimitedGroups { cgroup, limit_procs, meter } = LimitedGroups::new(limits)?;
    if cgroup.is_none() {
        // Something has to find and end all processes of the tree.
        can_supervise(plan)?;
    }
    let holder = TreeHolder { cgroup, limit_procs, meter: Some(Box::new(meter)) };
    start_held(plan, layout, lists, holder, ends_with_parent)
}

/// A function that returns the groups for the next tree of a slot, perhaps those of the last one.
pub(crate) type SlotLimits =
    fn(TreeLimits, Option<Arc<dyn KeptGroups>>) -> Result<Arc<dyn KeptGroups>, SpawnError>;

pub(crate) const SLOT_LIMITS: Option<SlotLimits> = Some(|limits, last| {
    check(&limits)?;
    Ok(keep(limits, last)?)
});

fn check(limits: &TreeLimits) -> Result<(), SpawnError> {
    match limits.mistake() {
        Some(mistake) => Err(SpawnError::bad(BadInput::TreeLimits(mistake))),
        None => Ok(()),
    }
}

impl From<NotLimited> for SpawnError {
    fn from(error: NotLimited) -> SpawnError {
        SpawnError::new(
            Step::TreeLimits,
            match error {
                NotLimited::Unavailable(limit) => io::Error::new(io::ErrorKind::Unsupported, limit),
                NotLimited::System(error) => error,
            },
        )
    }
}
