//! The reports of all connections, for the one thread that runs the batch.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pipewright_batch::AttemptKey;

use super::link::Link;
use crate::error::RemoteError;
use crate::files::Files;
use crate::wire::{About, Ended, Stream};

/// The reports after which the nodes wait. One read of a connection may exceed it.
const MOST_REPORTS: usize = 10_000;

/// A connection to a worker, numbered in order. A node that is connected again gets a new number.
pub(crate) type NodeId = u64;

/// The origin of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A command reaches it, for as long as the batch lasts.
    Command,
    /// It belongs to an allocation, and ends with it.
    Allocation,
}

/// A report of a connection.
#[derive(Debug)]
pub(crate) enum Report {
    /// A worker is there.
    Joined { node: NodeId, about: About, link: Link },
    /// Output of an attempt.
    Output { node: NodeId, key: AttemptKey, stream: Stream, bytes: Vec<u8> },
    /// The end of an attempt.
    Ended { node: NodeId, end: Box<Ended> },
    /// An attempt has not begun, and waits for room at its node.
    Displaced { node: NodeId, key: AttemptKey },
    /// There is room for it, and it waits for its begin.
    Placed { node: NodeId, key: AttemptKey },
    /// The files of an attempt have arrived, or one has not, for that reason.
    Files { node: NodeId, key: AttemptKey, files: Files, failure: Option<String> },
    /// A message for the user.
    Note { node: Option<NodeId>, text: String },
    /// The node is asked to end.
    Draining { node: NodeId, reason: String },
    /// The connection has ended. `None`: in order, so nothing runs there.
    Left { node: NodeId, error: Option<RemoteError> },
    /// The nodes of an allocation come. It is not known yet how long they stay.
    Submitted,
    /// Nodes of the allocation that join from now on, and those that are there, end at that time. `limit`: the time
    /// that a fresh allocation has.
    Deadline { at: Option<Instant>, limit: Option<Duration> },
    /// Somebody connected who is no worker of this batch.
    Refused { peer: SocketAddr, error: RemoteError },
    /// A message for a user who wants to know more.
    Detail(String),
    /// No further node will come from there.
    GaveUp { label: String, error: String },
}

/// The reports, and the number of connectors that may still connect a node.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    state: Mutex<State>,
    arrived: Condvar,
    /// Threads of nodes with more reports wait here.
    taken: Condvar,
    /// Threads between two attempts to connect wait here.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reports: VecDeque<Report>,
    last_node: NodeId,
    /// Connectors that have a connection, or may get one.
    connectors: usize,
    /// Those of them that are commands.
    commands: usize,
    /// The names of the nodes that are connected.
    connected: BTreeMap<NodeId, String>,
    joined: u64,
    threads: Vec<JoinHandle<()>>,
    on_close: Vec<OnClose>,
    is_waiting: bool,
    is_woken: bool,
    is_closed: bool,
}

/// A function that ends a wait.
struct OnClose(Box<dyn FnOnce() + Send>);

impl fmt::Debug for OnClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnClose")
    }
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

    /// Adds reports of a node, and waits first while the batch has many to take.
    pub(crate) fn add_from_node(&self, reports: impl IntoIterator<Item = Report>) {
        let mut state = self.state();
        while state.reports.len() >= MOST_REPORTS && !state.is_closed {
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.add(reports);
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

    /// Waits for reports, but no longer than `until`, and takes them. Returns none after that time, or when it was
    /// woken.
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
        self.taken.notify_all();
        std::mem::take(&mut state.reports)
    }

    /// Records a connector that may connect a node.
    pub(crate) fn add_connector(&self, origin: Origin) {
        let mut state = self.state();
        state.connectors += 1;
        state.commands += usize::from(origin == Origin::Command);
    }

    /// Records that a connector will connect no further node.
    pub(crate) fn give_up(&self, origin: Origin, label: String, error: String) {
        let mut state = self.state();
        state.connectors -= 1;
        state.commands -= usize::from(origin == Origin::Command);
        state.reports.push_back(Report::GaveUp { label, error });
        state.is_waiting = false;
        drop(state);
        self.arrived.notify_one();
    }

    /// Returns the number of connectors that are commands.
    pub(crate) fn commands(&self) -> usize {
        self.state().commands
    }

    pub(crate) fn connectors(&self) -> usize {
        self.state().connectors
    }

    /// Returns true if no connector is left, and what the last ones said has been taken: why they gave up.
    pub(crate) fn are_over(&self) -> bool {
        let state = self.state();
        state.connectors == 0 && state.reports.is_empty()
    }

    /// Ends all waits between attempts to connect.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let on_close = std::mem::take(&mut state.on_close);
        drop(state);
        self.closed.notify_all();
        self.taken.notify_all();
        on_close.into_iter().for_each(|OnClose(call)| call());
    }

    /// Calls a function when the batch ends.
    pub(crate) fn on_close(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if !state.is_closed {
            state.on_close.push(OnClose(Box::new(call)));
            return;
        }
        drop(state);
        call();
    }

    /// Reports a node that is there. Returns false if the batch has ended: nobody would end the connection.
    pub(crate) fn join(&self, node: NodeId, about: About, link: Link) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.joined += 1;
        state.connected.insert(node, about.node.clone());
        state.reports.push_back(Report::Joined { node, about, link });
        state.is_waiting = false;
        drop(state);
        self.closed.notify_all();
        self.arrived.notify_one();
        true
    }

    /// Waits for that time, or until more than `joined` nodes have joined. Returns true if the batch has
    /// ended.
    pub(crate) fn pause_until_joined(&self, time: Duration, joined: u64) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.is_closed || left.is_zero() || state.joined > joined {
                return state.is_closed;
            }
            let waited = self.closed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that a node is not connected any more.
    pub(crate) fn disconnect(&self, node: NodeId) {
        self.state().connected.remove(&node);
    }

    /// Returns the names of the nodes that are connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        self.state().connected.values().cloned().collect()
    }

    /// Returns the number of times that a node was connected.
    pub(crate) fn joined(&self) -> u64 {
        self.state().joined
    }

    /// Keeps a thread that has to end with the batch.
    pub(crate) fn add_thread(&self, thread: JoinHandle<()>) {
        self.state().threads.push(thread);
    }

    /// Returns the threads that have to end with the batch.
    pub(crate) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.state().threads)
    }

    pub(crate) fn detail(&self, text: String) {
        self.add([Report::Detail(text)]);
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_node_waits_while_many_reports_wait() {
        const ALL: usize = 3 * MOST_REPORTS;
        let reports = Reports::new();
        let sending = Arc::clone(&reports);
        let node = thread::spawn(move || {
            for _ in 0..ALL {
                sending.add_from_node([Report::Note { node: Some(1), text: String::new() }]);
            }
        });
        let mut taken = 0;
        while taken < ALL {
            while reports.state().reports.len() < MOST_REPORTS.min(ALL - taken) {
                thread::yield_now();
            }
            // Twice, so that one that does not wait would go on.
            thread::yield_now();
            let some = reports.take(None).len();
            assert!((1..=MOST_REPORTS).contains(&some), "{some}");
            taken += some;
        }
        node.join().unwrap();
    }
}
