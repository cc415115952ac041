//! The operations in flight, by token.

use std::time::{Duration, Instant};

use pipewright_os::disk::file::Action;

use crate::class::Observation;
use crate::progress::Progress;
use crate::{DiskFile, OperationId};

/// An operation in flight. The backend holds its buffer.
#[derive(Debug)]
pub(super) struct OperationSlot {
    pub(super) id: OperationId,
    pub(super) file: DiskFile,
    pub(super) action: Action,
    pub(super) progress: Progress,
    /// The observations of its calls. Empty if they were not requested.
    pub(super) observations: Vec<Observation>,
    pub(super) queued_at: Option<Instant>,
    pub(super) submitted_at: Option<Instant>,
}

impl OperationSlot {
    pub(super) fn new(
        id: OperationId,
        file: DiskFile,
        action: Action,
        progress: Progress,
        queued_at: Option<Instant>,
    ) -> OperationSlot {
        OperationSlot {
            id,
            file,
            action,
            progress,
            observations: Vec::new(),
            queued_at,
            submitted_at: None,
        }
    }

    /// Returns the total duration of the submitting calls.
    pub(super) fn in_calls(&self) -> Option<Duration> {
        if self.observations.is_empty() {
            return None;
        }
        self.observations.iter().map(|observation| observation.took()).sum()
    }

    /// Returns the time at which a thread of the engine started the operation.
    pub(super) fn started_at(&self) -> Option<Instant> {
        self.observations.iter().find_map(|observation| match observation {
            Observation::Thread { started_at } => *started_at,
            _ => None,
        })
    }
}

/// A slot for each operation that can be in flight.
#[derive(Debug)]
pub(super) struct OperationSlots {
    slots: Vec<Option<OperationSlot>>,
    free: Vec<usize>,
    /// The tokens of operations that have not been submitted yet.
    new: Vec<usize>,
    depth: usize,
}

impl OperationSlots {
    pub(super) fn new(depth: usize) -> OperationSlots {
        OperationSlots { slots: Vec::new(), free: Vec::new(), new: Vec::new(), depth }
    }

    /// Returns the number of slots in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores an operation and returns its token.
    pub(super) fn put(&mut self, slot: OperationSlot) -> usize {
        debug_assert!(self.len() < self.depth, "the caller checks for room");
        let has_time = slot.queued_at.is_some();
        let token = match self.free.pop() {
            Some(token) => {
                if let Some(place) = self.slots.get_mut(token) {
                    *place = Some(slot);
                }
                token
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        };
        if has_time {
            self.new.push(token);
        }
        token
    }

    pub(super) fn get(&mut self, token: usize) -> Option<&mut OperationSlot> {
        self.slots.get_mut(token)?.as_mut()
    }

    pub(super) fn take(&mut self, token: usize) -> Option<OperationSlot> {
        let slot = self.slots.get_mut(token)?.take()?;
        self.free.push(token);
        Some(slot)
    }

    pub(super) fn find(&self, id: OperationId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.id == id))
    }

    /// Sets the submission time of all new operations.
    pub(super) fn mark_submitted(&mut self, now: Option<Instant>) {
        for token in self.new.drain(..) {
            if let Some(Some(slot)) = self.slots.get_mut(token) {
                slot.submitted_at = now;
            }
        }
    }
}
