//! The reports of all connections, for the one thread that runs the batch.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::Link;
use crate::remote::error::RemoteError;
use crate::remote::wire::message::WireEnd;
use crate::remote::wire::{About, Key, Stream};

/// A connection to a worker, numbered in order. A node that is connected again gets a new number.
pub(crate) type NodeId = u64;

/// A report of a connection.
#[derive(Debug)]
pub(crate) enum Report {
    /// A worker is there.
    Joined { node: NodeId, about: About, link: Link },
    /// Output of an attempt.
    Output { node: NodeId, key: Key, stream: Stream, bytes: Vec<u8> },
    /// The end of an attempt.
    Ended { node: NodeId, end: Box<WireEnd> },
    /// A message for the user.
    Note { node: Option<NodeId>, text: String },
    /// The node is asked to end.
    Draining { node: NodeId, reason: String },
    /// The connection has ended. `None`: in order, so nothing runs there.
    Left { node: NodeId, error: Option<RemoteError> },
    /// No further node will come from there.
    GaveUp { label: String, error: String },
}

/// The reports, and the number of places that may still connect a node.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    state: Mutex<State>,
    arrived: Condvar,
    /// Threads between two attempts to connect wait here.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reports: VecDeque<Report>,
    last_node: NodeId,
    /// Places that have a connection, or may get one.
    places: usize,
    is_waiting: bool,
    is_woken: bool,
    is_closed: bool,
}

impl Reports {
    pub(crate) fn new() -> Arc<Reports> {
        Arc::default()
    }

    /// Returns the number of the next connection.
    pub(crate) fn next_node(&self) -> NodeId {
        let mut state = self.state();
        state.last_node += 1;
        state.last_node
    }

    /// Adds reports, all at once.
    pub(crate) fn add(&self, reports: impl IntoIterator<Item = Report>) {
        let mut state = self.state();
        state.reports.extend(reports);
        let wakes = std::mem::take(&mut state.is_waiting);
        drop(state);
        if wakes {
            self.arrived.notify_one();
        }
    }

    pub(crate) fn note(&self, text: String) {
        self.add([Report::Note { node: None, text }]);
    }

    /// Makes [`Self::take`] return early.
    pub(crate) fn wake(&self) {
        let mut state = self.state();
        (state.is_woken, state.is_waiting) = (true, false);
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits for reports, but no longer than `until`, and takes them. Returns none after that time, or when it was woken.
    pub(crate) fn take(&self, until: Option<Instant>) -> VecDeque<Report> {
        let mut state = self.state();
        while state.reports.is_empty() && !std::mem::take(&mut state.is_woken) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            state.is_waiting = true;
            state = match left {
                Some(left) => {
                    let waited = self.arrived.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.is_waiting = false;
        }
        std::mem::take(&mut state.reports)
    }

    /// Records a place that may connect a node.
    pub(crate) fn add_place(&self) {
        self.state().places += 1;
    }

    /// Records that a place will connect no further node.
    pub(crate) fn give_up(&self, label: String, error: String) {
        let mut state = self.state();
        state.places -= 1;
        state.reports.push_back(Report::GaveUp { label, error });
        state.is_waiting = false;
        drop(state);
        self.arrived.notify_one();
    }

    pub(crate) fn places(&self) -> usize {
        self.state().places
    }

    /// Ends all waits between attempts to connect.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.closed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Waits for that time. Returns false if the batch ends meanwhile.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        while !state.is_closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.closed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
