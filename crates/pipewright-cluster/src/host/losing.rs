//! Nodes that are drained, silent or gone, and the end of all of them.

use std::time::{Duration, Instant};

use pipewright_batch::{AttemptEnd, AttemptKey, AttemptOutcome, ExecutorEvent};

use super::reports::{NodeId, Report};
use super::{Node, NodeState, Remote, Running};
use crate::error::RemoteError;
use crate::lease::SILENCE;
use crate::wire::ToWorker;

/// The ends of attempts that do not run there, of one node.
const MOST_LATE_ENDS: u32 = 1000;

/// The late ends that are reported.
const MOST_TOLD_LATE_ENDS: u32 = 10;

/// The time that workers have to end after the batch.
const END_WAIT: Duration = Duration::from_secs(2);

impl Remote {
    /// Lets a node go that is drained.
    pub(super) fn release_if_drained(&mut self, id: NodeId) {
        let node = self.nodes.get(&id);
        let node = node.filter(|node| matches!(node.state, NodeState::Draining));
        if let Some(node) = node.filter(|node| node.running == 0) {
            // It has no fields.
            let _ = node.link.send(&ToWorker::End);
        }
    }

    pub(super) fn left(&mut self, id: NodeId, error: Option<RemoteError>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.placement.close(id);
        match error {
            // Nothing runs there.
            None => self.lose(id, "it has ended"),
            // The host may have closed it, for a reason that says more.
            Some(_) if matches!(node.state, NodeState::Disconnected(_)) => {}
            Some(error) => node.state = NodeState::Disconnected(error.to_string()),
        }
        self.report_capacity();
    }

    /// Gives up a node, and the attempts that ran there.
    pub(super) fn lose(&mut self, id: NodeId, reason: &str) {
        let Some(node) = self.nodes.remove(&id) else { return };
        node.link.close();
        self.placement.remove(id);
        let here = |running: &Running| running.place.is_some_and(|place| place.node == id);
        let mut lost: Vec<_> = self.attempts.iter().filter(|(_, running)| here(running)).collect();
        lost.sort_unstable_by_key(|(key, _)| **key);
        let (lost, placed): (Vec<_>, Vec<_>) =
            lost.into_iter().partition(|(_, running)| running.has_begun());
        let lost: Vec<_> = lost.into_iter().map(|(key, _)| *key).collect();
        // What has not begun there gets another place.
        for key in placed.into_iter().map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some(running) = self.attempts.get_mut(&key) {
                running.take_back();
                // That of its files, which are sent again.
                if let Some(at) = running.deadline.take() {
                    self.deadlines.remove(&(at, key));
                }
            }
            self.waiting.push_back(key);
        }
        if !lost.is_empty() {
            let jobs =
                if lost.len() == 1 { "1 job".into() } else { format!("{} jobs", lost.len()) };
            let note = format!("node {} is lost with {jobs}: {reason}", node.name);
            self.events.push_back(ExecutorEvent::Note(note));
        }
        for key in lost {
            let outcome = AttemptOutcome::Lost(format!("node {}: {reason}", node.name));
            let mut end = AttemptEnd::without_run(key, outcome);
            end.node = Some(node.name.clone());
            end.is_lost_with_node = true;
            self.finish(key, end);
        }
        self.place_waiting();
        self.report_capacity();
    }

    /// Closes the connection of each node that has not ended an attempt in time, or that takes no messages. It beats,
    /// so it is not silent; what runs there ends with its lease, and is lost then. Returns the time of the next look.
    pub(super) fn check_deadlines(&mut self, now: Instant) -> Option<Instant> {
        let is_gone = |node: &Node| matches!(node.state, NodeState::Disconnected(_));
        let mut overdue = Vec::new();
        while let Some((_, key)) = self.deadlines.first().filter(|(at, _)| *at <= now).copied() {
            self.deadlines.pop_first();
            if let Some(at) = self.files_are_due(key, now) {
                self.deadlines.insert((at, key));
                continue;
            }
            let Some(running) = self.attempts.get(&key) else { continue };
            let place = running.place.filter(|it| !self.nodes.get(&it.node).is_none_or(is_gone));
            let reason = match running.transfer {
                Some(_) => format!("the files of {key} do not move"),
                None => format!("{key} did not end in time"),
            };
            overdue.extend(place.map(|it| (it.node, reason)));
        }
        for (id, node) in &self.nodes {
            if node.link.is_stuck() && !is_gone(node) {
                overdue.push((*id, "it reads no messages".to_owned()));
            }
        }
        for (id, reason) in overdue {
            self.give_up_on(id, reason);
        }
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Sets the time at which the end of an attempt has to be here, unless it has an earlier one.
    pub(super) fn set_deadline(&mut self, key: AttemptKey, time: Duration) {
        let at = time.checked_add(self.patience).and_then(|time| Instant::now().checked_add(time));
        let (Some(at), Some(running)) = (at, self.attempts.get_mut(&key)) else { return };
        let before = running.deadline.replace(at.min(running.deadline.unwrap_or(at)));
        self.deadlines.extend(running.deadline.map(|at| (at, key)));
        if let Some(before) = before.filter(|before| Some(*before) != running.deadline) {
            self.deadlines.remove(&(before, key));
        }
    }

    /// Closes the connection of a node for that reason.
    fn give_up_on(&mut self, id: NodeId, reason: String) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.link.close();
        node.state = NodeState::Disconnected(reason);
        self.placement.close(id);
        self.report_capacity();
    }

    /// Takes note of the end of an attempt that does not run there. One may cross its stop; many are lies.
    pub(super) fn late_end(&mut self, id: NodeId, key: AttemptKey) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.late_ends += 1;
            if node.late_ends > MOST_LATE_ENDS {
                return match node.state {
                    NodeState::Disconnected(_) => {}
                    _ => self.give_up_on(id, "it ends jobs that do not run there".to_owned()),
                };
            }
            if node.late_ends > MOST_TOLD_LATE_ENDS {
                return;
            }
        }
        self.note(Some(id), &format!("the late end of {key} does not count"));
    }

    /// Gives up the nodes that were silent for too long. Returns the time at which the next one would be.
    pub(super) fn check_silence(&mut self, now: Instant) -> Option<Instant> {
        // A node whose connection is closed is lost here too, and not at the close: only once it has been silent for as
        // long has its lease ended, and with it its jobs, so that they may run elsewhere.
        let silent: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.link.heard() + SILENCE <= now)
            .map(|(id, node)| match &node.state {
                NodeState::Disconnected(reason) => (*id, reason.clone()),
                _ => (*id, RemoteError::Silent(SILENCE).to_string()),
            })
            .collect();
        for (id, reason) in silent {
            self.lose(id, &reason);
        }
        self.nodes.values().map(|node| node.link.heard() + SILENCE).min()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // From now on no node joins.
        self.reports.close();
        for node in self.nodes.values() {
            // It has no fields.
            let _ = node.link.send(&ToWorker::End);
        }
        let until = Instant::now() + END_WAIT;
        // At least once: a node may have joined just before.
        let mut wait = Instant::now();
        loop {
            for report in self.reports.take(Some(wait)) {
                match report {
                    Report::Left { node, .. } => drop(self.nodes.remove(&node)),
                    Report::Joined { node, about, link } => {
                        let _ = link.send(&ToWorker::End);
                        let state = NodeState::Draining;
                        self.nodes.insert(
                            node,
                            Node { name: about.node, link, state, running: 0, late_ends: 0 },
                        );
                    }
                    _ => {}
                }
            }
            wait = until;
            if self.nodes.is_empty() || Instant::now() >= until {
                break;
            }
        }
        for node in std::mem::take(&mut self.nodes).into_values() {
            node.link.close();
        }
        for thread in self.reports.take_threads() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}
