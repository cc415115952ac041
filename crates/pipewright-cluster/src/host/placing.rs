//! Attempts that wait for room, and the placement: which node runs an attempt.
//!
//! An attempt goes to the node with the most free CPUs. One that needs several waits until a node has that many; the
//! node that lacks fewest is kept free for it meanwhile, so that it does not wait for ever.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use pipewright_batch::{Attempt, AttemptEnd, AttemptKey, AttemptOutcome, ExecutorEvent, JobFiles};

use super::reports::{NodeId, Origin};
use super::{AtNode, Node, NodeState, Remote, Running};
use crate::wire::{self, ToWorker};

impl Remote {
    /// Starts the waiting attempts for which there is room.
    pub(super) fn place_waiting(&mut self) {
        let (mut kept, now) = (None, Instant::now());
        let mut passed_over = VecDeque::new();
        while let Some(key) = self.waiting.pop_front() {
            let Some(running) = self.attempts.get_mut(&key) else { continue };
            let cpus = running.cpus;
            let timeout = running.attempt.as_ref().and_then(|attempt| attempt.timeout);
            let until = timeout.and_then(|timeout| now.checked_add(timeout));
            if let Some(reason) = self.hopeless(cpus, timeout) {
                self.attempts.remove(&key);
                let outcome = AttemptOutcome::NotStarted(reason);
                let end = AttemptEnd::without_run(key, outcome);
                self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
                continue;
            }
            match self.placement.place(cpus, until, kept) {
                Some(place) => self.start_there(key, place),
                None => {
                    // Kept for the first one only.
                    kept = kept.or_else(|| self.placement.node_kept_for(cpus, until));
                    passed_over.push_back(key);
                }
            }
        }
        self.waiting = passed_over;
        self.release_ending_nodes(now);
    }

    /// Lets the nodes of an allocation go whose time is too short for every attempt that waits, so that another one is
    /// asked for.
    fn release_ending_nodes(&mut self, now: Instant) {
        let End::At(deadline) = self.allocation else { return };
        let is_allocated = |node: &Node| node.link.origin() == Origin::Allocation;
        let is_idle = self.nodes.values().all(|node| !is_allocated(node) || node.running == 0);
        let timeout = |key: &AttemptKey| {
            let attempt = self.attempts.get(key).and_then(|running| running.attempt.as_ref());
            attempt.and_then(|attempt| attempt.timeout)
        };
        let needs_more =
            |key: &AttemptKey| timeout(key).is_some_and(|timeout| now + timeout > deadline);
        // One that is too long for a fresh allocation waits for other nodes.
        let fits_another = |key: &AttemptKey| timeout(key) <= self.time_limit.or(timeout(key));
        let gains = self.waiting.iter().any(fits_another);
        if is_idle && gains && self.waiting.iter().all(needs_more) {
            for (id, node) in self.nodes.iter_mut().filter(|(_, node)| is_allocated(node)) {
                node.state = NodeState::Draining;
                self.placement.close(*id);
                // It has no fields.
                let _ = node.link.send(&ToWorker::End);
            }
            self.report_capacity();
        }
    }

    /// Returns the CPUs of the largest node, if no larger one can come: a connector that has no node may still get one.
    pub(super) fn final_largest(&self) -> Option<u32> {
        let may_grow =
            self.placement.capacity() == 0 || self.reports.connectors() > self.nodes.len();
        (!may_grow).then(|| self.placement.largest())
    }

    /// Returns the reason why an attempt can never start, if there is one.
    pub(super) fn hopeless(&self, cpus: u32, timeout: Option<Duration>) -> Option<String> {
        if let Some(largest) = self.final_largest().filter(|largest| cpus > *largest) {
            return Some(format!("needs {cpus} CPUs, and the largest node has {largest}"));
        }
        let (timeout, limit) = (timeout?, self.time_limit?);
        let is_there = |node: &&Node| {
            node.link.origin() == Origin::Command
                && !matches!(node.state, NodeState::Disconnected(_))
        };
        let may_come = self.reports.commands() > self.nodes.values().filter(is_there).count();
        let may_last = may_come || self.placement.largest_lasting() >= cpus;
        (timeout > limit && !may_last).then(|| {
            format!("has {timeout:?}, and the nodes are given for {limit:?}: ask for more time")
        })
    }

    /// Adds an attempt that waits for a place.
    pub(super) fn add(&mut self, attempt: Attempt, is_placed_first: bool) {
        let (key, cpus) = (attempt.key, attempt.cpus.max(1));
        let running = Running {
            output: None,
            place: None,
            attempt: Some(attempt),
            transfer: None,
            ended: None,
            files: JobFiles::default(),
            current_dir: None,
            sent: None,
            at_node: AtNode::Begun,
            is_placed_first,
            cpus,
            deadline: None,
        };
        self.attempts.insert(key, running);
        self.waiting.push_back(key);
        self.place_waiting();
    }

    fn start_there(&mut self, key: AttemptKey, place: Place) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Some(node) = self.nodes.get_mut(&place.node) else { return };
        running.place = Some(place);
        node.running += 1;
        if running.attempt.as_ref().is_some_and(|attempt| !attempt.files.send.is_empty()) {
            return self.send_files(key, place.node);
        }
        self.has_place(key);
    }

    /// Begins an attempt that has a place and its files there, or tells that it has them.
    pub(super) fn has_place(&mut self, key: AttemptKey) {
        match self.attempts.get(&key).is_some_and(|running| running.is_placed_first) {
            true => self.events.push_back(ExecutorEvent::Placed(key)),
            false => self.begin_there(key),
        }
    }

    /// Starts an attempt at its place. One that has none, or has begun, is ignored.
    pub(super) fn begin_there(&mut self, key: AttemptKey) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        // One that waits for its files has another place than the one that it is to begin at.
        let Some(place) = running.place.filter(|_| running.transfer.is_none()) else { return };
        let Some(node) = self.nodes.get_mut(&place.node) else { return };
        let (message, timeout) = match running.attempt.take() {
            Some(mut attempt) => {
                let (message, timeout) =
                    (wire::wire_attempt(&attempt, place.slot), attempt.timeout);
                running.output = attempt.output.take();
                running.files = attempt.files.clone();
                running.current_dir = attempt.current_dir.clone();
                running.sent = Some(attempt).filter(|_| running.is_placed_first);
                (ToWorker::Start(Box::new(message)), timeout)
            }
            None if running.at_node == AtNode::Placed => {
                (ToWorker::Begin(key), running.sent.as_ref().and_then(|sent| sent.timeout))
            }
            None => return,
        };
        running.at_node = AtNode::Begun;
        if let Err(error) = node.link.send(&message) {
            let outcome = AttemptOutcome::NotStarted(error.to_string());
            return self.finish(key, AttemptEnd::without_run(key, outcome));
        }
        if let Some(timeout) = timeout {
            self.set_deadline(key, timeout);
        }
    }

    /// Notes that an attempt has not begun at its node. Only one that is placed first may tell so: it is in the log.
    pub(super) fn displaced(&mut self, node: NodeId, key: AttemptKey) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        if running.is_placed_first && running.is_at(node) && running.has_begun() {
            running.at_node = AtNode::Displaced;
            // Its time begins with its begin.
            if let Some(at) = running.deadline.take() {
                self.deadlines.remove(&(at, key));
            }
            self.events.push_back(ExecutorEvent::Displaced(key));
        }
    }

    /// Notes that there is room at its node for an attempt that waited for some.
    pub(super) fn placed_there(&mut self, node: NodeId, key: AttemptKey) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        if running.is_at(node) && running.at_node == AtNode::Displaced {
            running.at_node = AtNode::Placed;
            self.events.push_back(ExecutorEvent::Placed(key));
        }
    }
}

impl Running {
    /// Takes an attempt that has not begun back from its node.
    pub(super) fn take_back(&mut self) {
        (self.place, self.at_node, self.transfer) = (None, AtNode::Begun, None);
        if let Some(mut sent) = self.sent.take() {
            sent.output = self.output.take();
            self.attempt = Some(sent);
        }
    }
}

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
    fn largest_lasting(&self) -> u32 {
        let lasting = self.open().filter(|(_, room)| !room.is_allocated);
        lasting.map(|(_, room)| room.slots).max().unwrap_or(0)
    }

    /// Returns the node that is kept for an attempt which needs this many CPUs until that time.
    fn node_kept_for(&self, cpus: u32, until: Option<Instant>) -> Option<NodeId> {
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
    use std::sync::Arc;

    use pipewright_batch::{Executor, Job, JobId};
    use proptest::prelude::*;

    use super::*;
    use crate::host::link::tests::to_nobody;
    use crate::host::reports::{Report, Reports};
    use crate::wire::About;

    const MINUTE: Duration = Duration::from_secs(60);

    fn attempt(job: u64, timeout: Duration) -> Attempt {
        let key = AttemptKey { job, attempt: 1 };
        let id = JobId::new(&Job::new("true"), 0);
        let mut attempt = Attempt::new(key, id, vec!["true".into()]);
        attempt.timeout = Some(timeout);
        attempt
    }

    fn joined(node: u64, origin: Origin) -> Report {
        let about = About { node: format!("n{node}"), slots: 1 };
        Report::Joined { node, about, link: to_nobody(origin) }
    }

    #[test]
    fn an_attempt_that_is_placed_first_begins_when_it_is_told_to() {
        let reports = Reports::new();
        reports.add_connector(Origin::Command);
        let mut remote = Remote::new(Arc::clone(&reports), MINUTE, false);
        let key = |job| AttemptKey { job, attempt: 1 };
        let placed = |remote: &mut Remote| {
            let events = std::mem::take(&mut remote.events).into_iter();
            let placed = events.filter_map(|event| match event {
                ExecutorEvent::Placed(key) => Some(key.job),
                _ => None,
            });
            placed.collect::<Vec<_>>()
        };
        remote.take(joined(1, Origin::Command));
        remote.place(attempt(1, MINUTE));
        remote.place(attempt(2, MINUTE));
        assert_eq!(placed(&mut remote), [1]);
        assert_eq!(remote.waiting().len(), 2, "neither has begun");
        // Its node is lost before it begins, and it gets another place.
        remote.lose(1, "it has ended");
        assert!(placed(&mut remote).is_empty());
        remote.take(joined(2, Origin::Command));
        assert_eq!(placed(&mut remote), [2]);
        remote.begin(key(1));
        assert_eq!(remote.waiting().len(), 2, "it has no place");
        remote.begin(key(2));
        assert_eq!(remote.waiting(), [key(1)]);
        // One that has a place and has not begun is stopped without a word to its node, and gives its place free.
        remote.take(joined(3, Origin::Command));
        assert_eq!(placed(&mut remote), [1]);
        remote.stop(key(1));
        let Some(ExecutorEvent::Ended(end)) = remote.events.pop_back() else { panic!() };
        assert!(matches!(end.outcome, AttemptOutcome::NotStarted(_)), "{end:?}");
        remote.place(attempt(3, MINUTE));
        assert_eq!(placed(&mut remote), [3]);
    }

    #[test]
    fn an_attempt_without_room_at_its_node_has_not_begun() {
        let reports = Reports::new();
        reports.add_connector(Origin::Command);
        let mut remote = Remote::new(Arc::clone(&reports), MINUTE, false);
        let key = AttemptKey { job: 1, attempt: 1 };
        let told = |remote: &mut Remote| {
            let told =
                std::mem::take(&mut remote.events).into_iter().filter_map(|event| match event {
                    ExecutorEvent::Placed(_) => Some("placed"),
                    ExecutorEvent::Displaced(_) => Some("displaced"),
                    ExecutorEvent::Ended(_) => Some("ended"),
                    _ => None,
                });
            told.collect::<Vec<_>>()
        };
        remote.take(joined(1, Origin::Command));
        remote.place(attempt(1, MINUTE));
        remote.begin(key);
        assert_eq!((told(&mut remote), remote.waiting().len()), (vec!["placed"], 0));
        // Another node, and room that it never lacked, say nothing.
        remote.take(Report::Displaced { node: 2, key });
        remote.take(Report::Placed { node: 1, key });
        assert!(told(&mut remote).is_empty());
        for _ in 0..2 {
            remote.take(Report::Displaced { node: 1, key });
            remote.take(Report::Displaced { node: 1, key });
            assert_eq!((told(&mut remote), remote.waiting()), (vec!["displaced"], vec![key]));
            assert!(remote.deadlines.is_empty());
            remote.take(Report::Placed { node: 1, key });
            assert_eq!((told(&mut remote), remote.waiting()), (vec!["placed"], vec![key]));
            remote.begin(key);
            assert_eq!((remote.waiting().len(), remote.deadlines.len()), (0, 1));
        }
        // Its node is lost before it begins: it gets another place, and is not lost.
        remote.take(Report::Displaced { node: 1, key });
        remote.lose(1, "it has ended");
        assert_eq!(told(&mut remote), ["displaced"]);
        remote.take(joined(2, Origin::Command));
        assert_eq!(told(&mut remote), ["placed"]);
        remote.begin(key);
        assert!(remote.waiting().is_empty());
        remote.lose(2, "it has ended");
        assert_eq!(told(&mut remote), ["ended"]);
    }

    #[test]
    fn a_node_that_a_command_reaches_has_no_part_in_the_time_of_an_allocation() {
        let reports = Reports::new();
        reports.add_connector(Origin::Allocation);
        reports.add_connector(Origin::Command);
        let mut remote = Remote::new(Arc::clone(&reports), MINUTE, false);
        let place = |remote: &Remote, job| {
            remote
                .attempts
                .get(&AttemptKey { job, attempt: 1 })
                .map(|it| it.place.map(|it| it.node))
        };
        // An allocation is asked for, and never comes.
        remote.take(Report::Submitted);
        remote.take(joined(1, Origin::Command));
        remote.start(attempt(1, 2 * MINUTE));
        assert_eq!(place(&remote, 1), Some(Some(1)));
        // It comes, and is too short for an attempt. The other node will have room.
        remote.take(joined(2, Origin::Allocation));
        remote.start(attempt(2, 2 * MINUTE));
        assert_eq!(place(&remote, 2), Some(None));
        let at = Some(Instant::now() + MINUTE);
        remote.take(Report::Deadline { at, limit: Some(MINUTE) });
        assert_eq!(place(&remote, 2), Some(None));
        remote.start(attempt(3, MINUTE / 2));
        assert_eq!(place(&remote, 3), Some(Some(2)));
        // Nothing but the allocation is left.
        reports.give_up(Origin::Command, "via".to_owned(), String::new());
        remote.lose(1, "it has ended");
        remote.place_waiting();
        assert_eq!(place(&remote, 2), None);
    }

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
