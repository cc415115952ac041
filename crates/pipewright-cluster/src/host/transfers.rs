//! Files that attempts get before they begin, and leave when they have ended.
//!
//! An attempt has its place while its files are sent, and has not begun: if its node is lost, it gets another place. It
//! keeps the place until what it has left is here: if its node is lost before, it runs again elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_batch::{AttemptEnd, AttemptKey, AttemptOutcome};

use super::reports::NodeId;
use super::{NodeState, Remote};
use crate::files::{Fetching, Files, Sending};

/// The time without any part of a file after which a node is given up: its jobs have ended, or have not begun, so no
/// timeout of theirs bounds it.
const STALLED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

impl Remote {
    /// Sends the files of an attempt to its node.
    pub(super) fn send_files(&mut self, key: AttemptKey, node: NodeId) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Some((attempt, node)) = running.attempt.as_ref().zip(self.nodes.get(&node)) else {
            return;
        };
        let wanted = Arc::new(());
        let sending = Sending {
            key,
            files: attempt.files.send.clone(),
            current_dir: attempt.current_dir.clone(),
            wanted: Arc::downgrade(&wanted),
        };
        running.transfer = Some(wanted);
        match node.link.files.send(sending) {
            Ok(()) => self.watch_files(key),
            Err(error) => {
                let outcome = AttemptOutcome::NotStarted(format!("cannot send files: {error}"));
                self.finish(key, AttemptEnd::without_run(key, outcome));
            }
        }
    }

    /// Fetches what an attempt has left, if it has run and is to leave something. Otherwise, it ends.
    pub(super) fn fetch_or_finish(&mut self, key: AttemptKey, end: AttemptEnd) {
        let has_run =
            !matches!(end.outcome, AttemptOutcome::NotStarted(_) | AttemptOutcome::Lost(_));
        let running = self.attempts.get_mut(&key);
        let Some(running) = running.filter(|running| has_run && !running.files.fetch.is_empty())
        else {
            return self.finish(key, end);
        };
        let node = running.place.and_then(|place| self.nodes.get(&place.node));
        let Some(node) = node else { return self.finish(key, end) };
        let wanted = Arc::new(());
        let fetching = Fetching {
            key,
            files: running.files.fetch.iter().cloned().collect(),
            current_dir: running.current_dir.take(),
            is_durable: running.files.is_durable,
            wanted: Arc::downgrade(&wanted),
        };
        (running.transfer, running.ended) = (Some(wanted), Some(Box::new(end)));
        running.output = None;
        match node.link.files.fetch(fetching) {
            Ok(()) => self.watch_files(key),
            Err(error) => self.finish_fetched(key, Some(format!("cannot fetch files: {error}"))),
        }
    }

    /// Takes note that the files of an attempt have arrived, or that one has not. One that was stopped, or is elsewhere
    /// by now, is ignored.
    pub(super) fn files_moved(
        &mut self,
        id: NodeId,
        key: AttemptKey,
        files: Files,
        failure: Option<String>,
    ) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let is_here = running.place.is_some_and(|place| place.node == id);
        let has_ended = running.ended.is_some();
        if !is_here || running.transfer.is_none() || has_ended != (files == Files::Fetched) {
            return;
        }
        if has_ended {
            self.finish_fetched(key, failure);
            return self.release_if_drained(id);
        }
        running.transfer = None;
        if let Some(at) = running.deadline.take() {
            self.deadlines.remove(&(at, key));
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(failure) = failure {
            let reason = format!("node {}: {failure}", node.name);
            let outcome = AttemptOutcome::NotStarted(reason);
            self.finish(key, AttemptEnd::without_run(key, outcome));
        } else if matches!(node.state, NodeState::Draining) {
            node.running -= 1;
            if let Some(place) = running.place {
                self.placement.release(place);
            }
            running.take_back();
            self.waiting.push_back(key);
            self.place_waiting();
        } else {
            return self.has_place(key);
        }
        self.release_if_drained(id);
    }

    /// Ends an attempt whose files are not wanted any more. It has not succeeded.
    pub(super) fn stop_fetching(&mut self, key: AttemptKey) {
        let end = self.attempts.get_mut(&key).and_then(|running| running.ended.as_mut());
        if let Some(end) = end.filter(|end| end.outcome.is_success()) {
            end.outcome = AttemptOutcome::Cancelled;
        }
        let node = self.attempts.get(&key).and_then(|running| running.place);
        self.finish_fetched(key, None);
        node.into_iter().for_each(|place| self.release_if_drained(place.node));
    }

    /// Ends an attempt whose files are here, or one is not.
    fn finish_fetched(&mut self, key: AttemptKey, failure: Option<String>) {
        let end = self.attempts.get_mut(&key).and_then(|running| running.ended.take());
        if let Some(mut end) = end {
            end.not_fetched = failure.map(|failure| match &end.node {
                Some(node) => format!("node {node}: {failure}"),
                None => failure,
            });
            self.finish(key, *end);
        }
    }

    /// Gives up the node of an attempt later, if no file moves until then.
    fn watch_files(&mut self, key: AttemptKey) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let at = Instant::now() + STALLED;
        if let Some(before) = running.deadline.replace(at) {
            self.deadlines.remove(&(before, key));
        }
        self.deadlines.insert((at, key));
    }

    /// Returns the time of the next look at an attempt whose files move.
    pub(super) fn files_are_due(&mut self, key: AttemptKey, now: Instant) -> Option<Instant> {
        let running = self.attempts.get_mut(&key).filter(|running| running.transfer.is_some())?;
        let node = self.nodes.get(&running.place?.node)?;
        let at = node.link.files.moved() + STALLED;
        (at > now).then(|| *running.deadline.insert(at))
    }
}
