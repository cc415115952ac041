//! A job that holds one tree after another.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{SpawnError, Step, start};
use crate::process::child::{ChildHandle, ContainedTree, Containment};
use crate::process::contain::windows::{Job, JobTree};
use crate::process::limits::TreeResources;
use crate::process::member::Member;
use crate::process::start::plan::{self, Way};
use crate::process::start::slot::{Begun, Slot, TreeSlot};
use crate::process::start::{BadInput, Plan};

/// Creates a slot. Nothing has to be reaped.
pub(in crate::process::start) fn new_slot(_: fn(ChildHandle)) -> Result<TreeSlot, SpawnError> {
    let job = new_job(false)?;
    let state = State { job, allow_breakaway: false, is_limited: false, tree: Weak::new() };
    let state = Mutex::new(state);
    Ok(TreeSlot(Arc::new(WindowsSlot { state })))
}

fn new_job(allow_breakaway: bool) -> Result<Arc<Job>, SpawnError> {
    let job = Job::for_tree(allow_breakaway);
    Ok(Arc::new(job.map_err(|error| SpawnError::new(Step::Contain, error))?))
}

#[derive(Debug)]
struct WindowsSlot {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    job: Arc<Job>,
    /// The setting of the job.
    allow_breakaway: bool,
    /// True if the job has limits, which hold for the last command only.
    is_limited: bool,
    /// Alive as long as a tree is in use.
    tree: Weak<()>,
}

impl Slot for WindowsSlot {
    fn begin(self: Arc<Self>, plan: &Plan<'_>) -> Result<Begun, SpawnError> {
        plan::check_options(plan, Way::WindowsSlot)?;
        // Each field is one assignment.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_free() {
            return Err(SpawnError::bad(BadInput::SlotInUse));
        }
        let allow_breakaway = plan.windows.is_some_and(|windows| windows.allow_breakaway);
        let mut held = None;
        if let Some(limits) = plan.contain.and_then(|contain| contain.slot_limits) {
            // The peaks of a job cannot be reset.
            let (job, limits) = limits(plan)?;
            *state =
                State { job: Arc::new(job), allow_breakaway, is_limited: true, tree: Weak::new() };
            held = Some(limits);
        } else if allow_breakaway != state.allow_breakaway || state.is_limited {
            let job = new_job(allow_breakaway)?;
            *state = State { job, allow_breakaway, is_limited: false, tree: Weak::new() };
        }
        let exit = start(plan, Some(std::os::windows::io::AsHandle::as_handle(&*state.job)))?;
        let in_use = Arc::new(());
        state.tree = Arc::downgrade(&in_use);
        let tree = JobTree::new(Arc::clone(&state.job), exit.pid());
        let tree = match held {
            Some(held) => tree.with_limits(held),
            None => tree,
        };
        let tree = Box::new(SlotTree { tree, _in_use: in_use });
        Ok(Begun::Started(ChildHandle(exit.with_tree(tree))))
    }

    fn containment(&self) -> Containment {
        Containment::Job
    }

    fn is_free(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_free()
    }
}

impl State {
    fn is_free(&self) -> bool {
        self.tree.strong_count() == 0 && self.job.empty()
    }
}

/// The tree of a child in a slot.
///
/// # Drop
/// Kills the tree: the job, which stays, does not.
#[derive(Debug)]
struct SlotTree {
    tree: JobTree,
    _in_use: Arc<()>,
}

impl ContainedTree for SlotTree {
    fn containment(&self) -> Containment {
        self.tree.containment()
    }

    fn kill(&self) {
        self.tree.kill();
    }

    fn is_alive(&self) -> bool {
        self.tree.is_alive()
    }

    fn last(&self) -> Option<&Member> {
        self.tree.last()
    }

    fn end(&self) -> u32 {
        self.tree.end()
    }

    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()> {
        self.tree.collect(members)
    }

    fn resources(&self) -> Option<TreeResources> {
        self.tree.resources()
    }

    fn release(self: Box<Self>) -> Option<ChildHandle> {
        None
    }
}

impl Drop for SlotTree {
    fn drop(&mut self) {
        if self.tree.is_alive() {
            self.tree.kill();
        }
    }
}
