//! The holders of process trees, one for each slot of the batch.

use std::collections::{HashMap, HashSet};

use pipewright::{Error, ErrorKind, Limits, TreeSlot};

use super::Containing;

/// The holders. They are made when they are needed, and used by one job after the other.
#[derive(Debug)]
pub(super) struct Slots {
    contain: Containing,
    trees: HashMap<u32, TreeSlot>,
    note: Option<String>,
}

/// The containment of a command.
pub(super) enum Place {
    /// A tree, perhaps with limits.
    Tree(TreeSlot, Option<Limits>),
    Group,
}

impl Slots {
    pub(super) fn new(contain: Containing) -> Slots {
        Slots { contain, trees: HashMap::new(), note: None }
    }

    /// Returns the holder of the next command in that slot; `None` if commands have groups only.
    ///
    /// # Errors
    /// There is no room for another process or handle.
    pub(super) fn tree(&mut self, slot: u32) -> Result<Option<TreeSlot>, Error> {
        if self.contain == Containing::Group {
            return Ok(None);
        }
        if let Some(tree) = self.trees.get(&slot) {
            return Ok(Some(tree.clone()));
        }
        match TreeSlot::new() {
            Ok(tree) => {
                self.trees.insert(slot, tree.clone());
                Ok(Some(tree))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
                self.contain = Containing::Group;
                self.note = Some(format!(
                    "jobs have process groups only, so processes can outlive them: {error}"
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up the holder of a slot in which a process of its last command does not end, and returns it.
    pub(super) fn take_stuck(&mut self, slot: u32) -> Option<TreeSlot> {
        self.trees.get(&slot).filter(|tree| !tree.is_free())?;
        self.trees.remove(&slot)
    }

    /// Returns true if the slot has a holder, or needs none.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.contain == Containing::Group || self.trees.contains_key(&slot)
    }

    /// Gives a slot the holder of one that runs nothing, if there is one.
    pub(super) fn move_idle(&mut self, slot: u32, busy: &HashSet<u32>) {
        let is_idle = |(other, tree): &(&u32, &TreeSlot)| !busy.contains(other) && tree.is_free();
        let idle = self.trees.iter().find(is_idle).map(|(idle, _)| *idle);
        if let Some(tree) = idle.and_then(|idle| self.trees.remove(&idle)) {
            self.trees.insert(slot, tree);
        }
    }

    /// Gives up the holders of all slots but these, and their handles. Returns true if there were some.
    pub(super) fn retain(&mut self, busy: &HashSet<u32>) -> bool {
        let before = self.trees.len();
        self.trees.retain(|slot, _| busy.contains(slot));
        self.trees.len() < before
    }

    /// Returns the reason for a weaker containment, once.
    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }
}
