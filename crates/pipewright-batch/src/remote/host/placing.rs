//! Attempts that wait for room, and their starts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::placement::Place;
use super::{NodeState, Remote};
use crate::executor::{AttemptEnd, AttemptKey, AttemptOutcome, ExecutorEvent};
use crate::remote::wire::{self, ToWorker};

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
            if timeout.is_some() && self.lacks_deadline {
                passed_over.push_back(key);
                continue;
            }
            match self.placement.place(cpus, until, kept) {
                Some(place) => self.start_there(key, place),
                None => {
                    // Kept for the first one only.
                    kept = kept.or_else(|| self.placement.node_kept_for(cpus));
                    passed_over.push_back(key);
                }
            }
        }
        self.waiting = passed_over;
        self.release_ending_nodes(now);
    }

    /// Lets the nodes of an allocation go whose time is too short for every attempt that waits, so that another one is asked for.
    pub(super) fn release_ending_nodes(&mut self, now: Instant) {
        let Some(deadline) = self.deadline else { return };
        let is_idle = self.nodes.values().all(|node| node.running == 0);
        let needs_more = |key: &AttemptKey| {
            let attempt = self.attempts.get(key).and_then(|running| running.attempt.as_ref());
            let timeout = attempt.and_then(|attempt| attempt.timeout);
            timeout.is_some_and(|timeout| now + timeout > deadline)
        };
        if is_idle && !self.waiting.is_empty() && self.waiting.iter().all(needs_more) {
            for (id, node) in &mut self.nodes {
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
        (timeout > limit).then(|| {
            format!("has {timeout:?}, and the nodes are given for {limit:?}: ask for more time")
        })
    }

    pub(super) fn start_there(&mut self, key: AttemptKey, place: Place) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Some(node) = self.nodes.get_mut(&place.node) else { return };
        let Some(attempt) = running.attempt.take() else { return };
        let message = wire::wire_attempt(&attempt, place.slot);
        running.output = attempt.output;
        running.place = Some(place);
        node.running += 1;
        if let Err(error) = node.link.send(&ToWorker::Start(Box::new(message))) {
            let outcome = AttemptOutcome::NotStarted(error.to_string());
            return self.finish(key, AttemptEnd::without_run(key, outcome));
        }
        if let Some(timeout) = attempt.timeout {
            self.set_deadline(key, timeout);
        }
    }
}
