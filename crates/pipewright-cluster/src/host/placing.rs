//! Attempts that wait for room, and their starts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pipewright_batch::{Attempt, AttemptEnd, AttemptKey, AttemptOutcome, ExecutorEvent};

use super::placement::{End, Place};
use super::reports::Origin;
use super::{Node, NodeState, Remote, Running};
use crate::wire::{self, ToWorker};

impl Remote {
    /// Starts attempts that wait for room, as far as there is some.
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

    /// Lets the nodes of an allocation go whose time is too short for every attempt that waits, so that another one is asked for.
    pub(super) fn release_ending_nodes(&mut self, now: Instant) {
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
        match running.is_placed_first {
            true => self.events.push_back(ExecutorEvent::Placed(key)),
            false => self.begin_there(key),
        }
    }

    /// Starts an attempt at its place. One that has none, or has begun, is ignored.
    pub(super) fn begin_there(&mut self, key: AttemptKey) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Some(place) = running.place else { return };
        let Some(node) = self.nodes.get_mut(&place.node) else { return };
        let Some(attempt) = running.attempt.take() else { return };
        let message = wire::wire_attempt(&attempt, place.slot);
        running.output = attempt.output;
        if let Err(error) = node.link.send(&ToWorker::Start(Box::new(message))) {
            let outcome = AttemptOutcome::NotStarted(error.to_string());
            return self.finish(key, AttemptEnd::without_run(key, outcome));
        }
        if let Some(timeout) = attempt.timeout {
            self.set_deadline(key, timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pipewright_batch::{Executor, Job, JobId};

    use super::*;
    use crate::host::link::Link;
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
        Report::Joined { node, about, link: Link::to_nobody(origin) }
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
}
