//! The placement: which node runs an attempt.
//!
//! An attempt goes to the node with the most free CPUs. One that needs several waits until a node has so many; the node that lacks
//! fewest is kept free for it meanwhile, so that it does not wait for ever.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use super::reports::NodeId;

/// The end of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It stays as long as the batch.
    Never,
    /// It ends, and nobody has told yet when.
    Unknown,
    At(Instant),
}

impl End {
    /// Returns true if an attempt that may run until that time ends before. One without a limit may end with its node.
    fn is_after(self, until: Option<Instant>) -> bool {
        match (self, until) {
            (End::Never, _) | (_, None) => true,
            (End::Unknown, Some(_)) => false,
            (End::At(end), Some(until)) => until <= end,
        }
    }
}

/// The nodes, and what is free there.
#[derive(Debug, Default)]
pub(super) struct Placement {
    nodes: BTreeMap<NodeId, Room>,
}

/// The room on a node.
#[derive(Debug)]
struct Room {
    slots: u32,
    free: u32,
    /// Numbers of slots that are free, all lower than those that were never used.
    released: BinaryHeap<Reverse<u32>>,
    used: u32,
    /// Nothing new is placed there.
    is_closed: bool,
    /// True if it ends with an allocation.
    is_allocated: bool,
    end: End,
}

/// A place on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: NodeId,
    /// The slot there, from 1.
    pub(super) slot: u32,
    pub(super) cpus: u32,
}

impl Placement {
    /// Adds a node. `allocation`: the end of the allocation that it belongs to.
    pub(super) fn add(&mut self, node: NodeId, slots: u32, allocation: Option<End>) {
        let room = Room {
            slots,
            free: slots,
            released: BinaryHeap::new(),
            used: 0,
            is_closed: false,
            is_allocated: allocation.is_some(),
            end: allocation.unwrap_or(End::Never),
        };
        self.nodes.insert(node, room);
    }

    /// Sets the end of all nodes of the allocation that are there.
    pub(super) fn set_end(&mut self, end: End) {
        let rooms = self.nodes.values_mut().filter(|room| room.is_allocated);
        rooms.for_each(|room| room.end = end);
    }

    /// Places nothing more on a node.
    pub(super) fn close(&mut self, node: NodeId) {
        if let Some(room) = self.nodes.get_mut(&node) {
            room.is_closed = true;
        }
    }

    /// Forgets a node, and what runs there.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns the CPUs of all nodes that take attempts.
    pub(super) fn capacity(&self) -> u32 {
        self.open().fold(0, |sum, (_, room)| sum.saturating_add(room.slots))
    }

    /// Returns the CPUs of the largest node.
    pub(super) fn largest(&self) -> u32 {
        self.open().map(|(_, room)| room.slots).max().unwrap_or(0)
    }

    /// Returns the CPUs of the largest node that belongs to no allocation.
    pub(super) fn largest_lasting(&self) -> u32 {
        let lasting = self.open().filter(|(_, room)| !room.is_allocated);
        lasting.map(|(_, room)| room.slots).max().unwrap_or(0)
    }

    /// Returns the node that is kept for an attempt which needs so many CPUs until that time.
    pub(super) fn node_kept_for(&self, cpus: u32, until: Option<Instant>) -> Option<NodeId> {
        let large = self.open().filter(|(_, room)| room.slots >= cpus && room.end.is_after(until));
        large.max_by_key(|(node, room)| (room.free, Reverse(**node))).map(|(node, _)| *node)
    }

    /// Takes room for an attempt that may run until that time, not on the node that is kept for another one.
    pub(super) fn place(
        &mut self,
        cpus: u32,
        until: Option<Instant>,
        kept: Option<NodeId>,
    ) -> Option<Place> {
        let fitting = self.open().filter(|(node, room)| {
            room.free >= cpus && room.end.is_after(until) && Some(**node) != kept
        });
        let node = *fitting.max_by_key(|(node, room)| (room.free, Reverse(**node)))?.0;
        let room = self.nodes.get_mut(&node)?;
        room.free -= cpus;
        let slot = room.released.pop().map_or_else(
            || {
                room.used += 1;
                room.used
            },
            |Reverse(slot)| slot,
        );
        Some(Place { node, slot, cpus })
    }

    /// Gives room back.
    pub(super) fn release(&mut self, place: Place) {
        if let Some(room) = self.nodes.get_mut(&place.node) {
            room.free += place.cpus;
            room.released.push(Reverse(place.slot));
        }
    }

    fn open(&self) -> impl Iterator<Item = (&NodeId, &Room)> {
        self.nodes.iter().filter(|(_, room)| !room.is_closed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn placement(slots: &[u32]) -> Placement {
        let mut placement = Placement::default();
        for (node, slots) in slots.iter().enumerate() {
            placement.add(node as NodeId, *slots, None);
        }
        placement
    }

    #[test]
    fn attempts_are_spread_and_slots_are_used_again() {
        let mut nodes = placement(&[2, 2]);
        let places: Vec<_> = (0..4).map(|_| nodes.place(1, None, None).unwrap()).collect();
        let at = |node, slot| Place { node, slot, cpus: 1 };
        assert_eq!(places, [at(0, 1), at(1, 1), at(0, 2), at(1, 2)]);
        assert_eq!(nodes.place(1, None, None), None);
        nodes.release(places[2]);
        nodes.release(places[0]);
        assert_eq!(nodes.place(1, None, None), Some(at(0, 1)));
    }

    #[test]
    fn the_node_that_lacks_fewest_is_kept_for_a_large_attempt() {
        let mut nodes = placement(&[4, 8, 8]);
        let first = nodes.place(2, None, None).unwrap();
        assert_eq!(first.node, 1);
        assert_eq!(nodes.place(8, None, None).unwrap().node, 2);
        // Only nodes that are large enough count, however busy they are.
        let kept = nodes.node_kept_for(8, None);
        assert_eq!(kept, Some(1));
        assert_eq!(nodes.place(1, None, kept).unwrap().node, 0);
        nodes.release(first);
        assert_eq!(nodes.place(8, None, None).unwrap().node, 1);
        assert_eq!(nodes.node_kept_for(9, None), None);
    }

    #[test]
    fn a_node_that_drains_takes_nothing_and_counts_for_nothing() {
        let mut nodes = placement(&[2, 3]);
        nodes.close(1);
        assert_eq!((nodes.capacity(), nodes.largest()), (2, 2));
        assert_eq!(nodes.place(3, None, None), None);
    }

    #[test]
    fn an_attempt_goes_only_where_its_time_is_left() {
        let (now, minute) = (Instant::now(), std::time::Duration::from_secs(60));
        let mut nodes = Placement::default();
        (0..2).for_each(|node| nodes.add(node, 1, Some(End::Unknown)));
        // It is not known how long they stay.
        assert_eq!(nodes.place(1, Some(now + minute), None), None);
        assert_eq!(nodes.node_kept_for(1, Some(now + minute)), None);
        nodes.set_end(End::At(now + minute));
        assert_eq!(nodes.place(1, Some(now + 2 * minute), None), None);
        assert!(nodes.place(1, Some(now + minute), None).is_some());
        // One without a limit may end with its node.
        assert!(nodes.place(1, None, None).is_some());
        nodes.add(7, 1, None);
        // That of the allocation is not its end.
        nodes.set_end(End::Unknown);
        assert_eq!(nodes.node_kept_for(1, Some(now + 2 * minute)), Some(7));
        assert_eq!(nodes.place(1, Some(now + 2 * minute), None).unwrap().node, 7);
        assert_eq!(nodes.largest_lasting(), 1);
    }

    proptest! {
        #[test]
        fn no_node_ever_runs_more_than_it_has(
            slots in prop::collection::vec(1_u32..9, 1..6),
            steps in prop::collection::vec((1_u32..9, any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let mut nodes = placement(&slots);
            let mut places: Vec<Place> = Vec::new();
            for (cpus, ends, which) in steps {
                if ends && !places.is_empty() {
                    nodes.release(places.swap_remove(which.index(places.len())));
                } else {
                    places.extend(nodes.place(cpus, None, None));
                }
                for (node, slots) in slots.iter().enumerate() {
                    let here: Vec<_> = places.iter().filter(|it| it.node == node as NodeId).collect();
                    prop_assert!(here.iter().map(|place| place.cpus).sum::<u32>() <= *slots);
                    let mut used: Vec<_> = here.iter().map(|place| place.slot).collect();
                    used.sort_unstable();
                    used.dedup();
                    prop_assert_eq!(used.len(), here.len());
                    prop_assert!(used.iter().all(|slot| *slot <= *slots));
                }
            }
        }
    }
}
