//! The executor that runs attempts on other machines.
//!
//! One thread runs the batch, and takes the reports of all connections. Each connection has a thread that reads and one that writes, so
//! a slow node, network or disk holds up no beat.
//!
//! | file | contents |
//! |---|---|
//! | `nodes.rs` | the settings: which nodes, and how they are reached |
//! | `placement.rs` | which node runs an attempt |
//! | `reports.rs` | the reports of all connections |
//! | `link.rs` | a connection to a worker |
//! | `place.rs` | a place that connects a node, again and again |
//! | `via.rs`, `bootstrap.rs` | workers over the stdio of a command, and the way of the program there |
//! | `listener.rs` | workers that connect by themselves |

mod bootstrap;
pub(crate) mod link;
mod nodes;
pub(crate) mod place;
mod placement;
pub(crate) mod reports;
mod via;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::Source;

use super::error::RemoteError;
use super::lease::SILENCE;
use super::wire::message::WireEnd;
use super::wire::{self, About, Key, Stream, ToWorker};
use crate::executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, OutputSink,
};
use link::Link;
pub use nodes::Nodes;
use placement::{Place, Placement};
use reports::{NodeId, Report, Reports};

/// The time that workers have to end after the batch.
const END_WAIT: Duration = Duration::from_secs(2);

/// Runs attempts on other machines.
///
/// # Drop
/// Ends the workers, which kill what runs.
#[derive(Debug)]
pub struct Remote {
    reports: Arc<Reports>,
    nodes: BTreeMap<NodeId, Node>,
    placement: Placement,
    attempts: HashMap<AttemptKey, Running>,
    /// Attempts that no node has room for, in order.
    waiting: VecDeque<AttemptKey>,
    events: VecDeque<ExecutorEvent>,
    /// The capacity that was reported last.
    capacity: u32,
    /// The threads of the places.
    threads: Vec<std::thread::JoinHandle<()>>,
    /// The reason of the place that gave up last.
    last_failure: Option<String>,
}

/// A node that is connected, or whose attempts may still run.
#[derive(Debug)]
struct Node {
    name: String,
    link: Link,
    state: NodeState,
    /// The number of attempts there.
    running: usize,
}

#[derive(Debug)]
enum NodeState {
    Connected,
    /// It takes nothing new.
    Draining,
    /// The connection is gone. Its attempts may run until the lease has ended.
    Disconnected(String),
}

/// An attempt that has been started, or waits for room.
#[derive(Debug)]
struct Running {
    output: Option<Box<dyn OutputSink>>,
    place: Option<Place>,
    /// What is needed to start it, while it waits.
    attempt: Option<Attempt>,
    cpus: u32,
}

impl Remote {
    fn new(reports: Arc<Reports>, threads: Vec<std::thread::JoinHandle<()>>) -> Remote {
        Remote {
            reports,
            nodes: BTreeMap::new(),
            placement: Placement::default(),
            attempts: HashMap::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            capacity: 0,
            threads,
            last_failure: None,
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Joined { node, about, link } => self.join(node, about, link),
            Report::Output { node, key, stream, bytes } => self.output(node, key, stream, &bytes),
            Report::Ended { node, end } => self.ended(node, *end),
            Report::Note { node, text } => self.note(node, &text),
            Report::Draining { node, reason } => {
                self.note(Some(node), &format!("no job is started there: {reason}"));
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.state = NodeState::Draining;
                }
                self.placement.close(node);
                self.release_if_drained(node);
                self.report_capacity();
            }
            Report::Left { node, error } => self.left(node, error),
            Report::GaveUp { label, error } => {
                self.events.push_back(ExecutorEvent::Note(format!("{label}: {error}; given up")));
                self.last_failure = Some(format!("{label}: {error}"));
                self.place_waiting();
            }
        }
    }

    fn join(&mut self, id: NodeId, about: About, link: Link) {
        let is_taken = |name: &str| self.nodes.values().any(|node| node.name == name);
        let name = match is_taken(&about.node) {
            true => format!("{}#{id}", about.node),
            false => about.node,
        };
        let jobs = if about.slots == 1 { "job" } else { "jobs" };
        let note = format!("node {name}: {} {jobs} at once", about.slots);
        self.events.push_back(ExecutorEvent::Note(note));
        let state = NodeState::Connected;
        self.nodes.insert(id, Node { name, link, state, running: 0 });
        self.placement.add(id, about.slots.max(1));
        self.place_waiting();
        self.report_capacity();
    }

    fn output(&mut self, id: NodeId, key: Key, stream: Stream, bytes: &[u8]) {
        if let Some(node) = self.nodes.get(&id) {
            // A number is never too long.
            let _ = node.link.send(&ToWorker::Credit(bytes.len() as u64));
        }
        let source = match stream {
            Stream::Stdout => Source::Stdout,
            Stream::Stderr => Source::Stderr,
        };
        let running = self.attempts.get_mut(&key.into());
        let running = running.filter(|running| running.place.is_some_and(|it| it.node == id));
        if let Some(output) = running.and_then(|running| running.output.as_mut()) {
            output.write(source, bytes);
        }
    }

    fn ended(&mut self, id: NodeId, end: WireEnd) {
        let key = AttemptKey::from(end.key);
        let is_here = |running: &Running| running.place.is_some_and(|place| place.node == id);
        let Some(node) =
            self.nodes.get(&id).filter(|_| self.attempts.get(&key).is_some_and(is_here))
        else {
            return self.note(Some(id), &format!("the late end of {key} does not count"));
        };
        let end = wire::end_of(end, &node.name);
        self.finish(key, end);
        self.release_if_drained(id);
    }

    /// Ends an attempt: its output, its room, and its event.
    fn finish(&mut self, key: AttemptKey, end: AttemptEnd) {
        let Some(running) = self.attempts.remove(&key) else { return };
        drop(running.output);
        if let Some(place) = running.place {
            self.placement.release(place);
            if let Some(node) = self.nodes.get_mut(&place.node) {
                node.running -= 1;
            }
        }
        self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
        self.place_waiting();
    }

    fn note(&mut self, node: Option<NodeId>, text: &str) {
        let name = node.and_then(|node| self.nodes.get(&node)).map(|node| node.name.as_str());
        let text = match (name, node) {
            (Some(name), _) => format!("node {name}: {text}"),
            (None, Some(_)) => format!("a lost node: {text}"),
            (None, None) => text.to_owned(),
        };
        self.events.push_back(ExecutorEvent::Note(text));
    }

    /// Lets a node go that is drained.
    fn release_if_drained(&mut self, id: NodeId) {
        let node = self.nodes.get(&id);
        let node = node.filter(|node| matches!(node.state, NodeState::Draining));
        if let Some(node) = node.filter(|node| node.running == 0) {
            // It has no fields.
            let _ = node.link.send(&ToWorker::End);
        }
    }

    fn left(&mut self, id: NodeId, error: Option<RemoteError>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.placement.close(id);
        match error {
            // Nothing runs there.
            None => self.lose(id, "it has ended"),
            Some(error) => node.state = NodeState::Disconnected(error.to_string()),
        }
        self.report_capacity();
    }

    /// Gives up a node, and the attempts that ran there.
    fn lose(&mut self, id: NodeId, reason: &str) {
        let Some(node) = self.nodes.remove(&id) else { return };
        node.link.close();
        self.placement.remove(id);
        let here = |running: &Running| running.place.is_some_and(|place| place.node == id);
        let mut lost: Vec<_> = self.attempts.iter().filter(|(_, running)| here(running)).collect();
        lost.sort_unstable_by_key(|(key, _)| **key);
        let lost: Vec<_> = lost.into_iter().map(|(key, _)| *key).collect();
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
            self.finish(key, end);
        }
        self.report_capacity();
    }

    /// Gives up the nodes that were silent for too long. Returns the time at which the next one would be.
    fn check_silence(&mut self, now: Instant) -> Option<Instant> {
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

    fn report_capacity(&mut self) {
        let capacity = self.placement.capacity();
        if capacity != self.capacity {
            self.capacity = capacity;
            self.events.push_back(ExecutorEvent::Capacity { cpus: capacity });
        }
    }

    /// Starts attempts that wait for room, as far as there is some.
    fn place_waiting(&mut self) {
        let mut kept = None;
        let mut passed_over = VecDeque::new();
        while let Some(key) = self.waiting.pop_front() {
            let Some(running) = self.attempts.get_mut(&key) else { continue };
            let cpus = running.cpus;
            let is_hopeless = cpus > self.placement.largest()
                && self.placement.capacity() > 0
                && self.reports.places() <= self.nodes.len();
            if is_hopeless {
                let reason = format!(
                    "needs {cpus} CPUs, and the largest node has {}",
                    self.placement.largest()
                );
                let outcome = AttemptOutcome::NotStarted(reason);
                self.attempts.remove(&key);
                let end = AttemptEnd::without_run(key, outcome);
                self.events.push_back(ExecutorEvent::Ended(Box::new(end)));
                continue;
            }
            match self.placement.place(cpus, kept) {
                Some(place) => self.start_there(key, place),
                None => {
                    // Kept for the first one only.
                    kept = kept.or_else(|| self.placement.node_kept_for(cpus));
                    passed_over.push_back(key);
                }
            }
        }
        self.waiting = passed_over;
    }

    fn start_there(&mut self, key: AttemptKey, place: Place) {
        let Some(running) = self.attempts.get_mut(&key) else { return };
        let Some(node) = self.nodes.get_mut(&place.node) else { return };
        let Some(attempt) = running.attempt.take() else { return };
        let message = wire::wire_attempt(&attempt, place.slot);
        running.output = attempt.output;
        running.place = Some(place);
        node.running += 1;
        if let Err(error) = node.link.send(&ToWorker::Start(Box::new(message))) {
            let outcome = AttemptOutcome::NotStarted(error.to_string());
            self.finish(key, AttemptEnd::without_run(key, outcome));
        }
    }
}

impl Executor for Remote {
    fn start(&mut self, attempt: Attempt) {
        let (key, cpus) = (attempt.key, attempt.cpus.max(1));
        let running = Running { output: None, place: None, attempt: Some(attempt), cpus };
        self.attempts.insert(key, running);
        self.waiting.push_back(key);
        self.place_waiting();
    }

    fn stop(&mut self, key: AttemptKey) {
        let Some(running) = self.attempts.get(&key) else { return };
        match running.place {
            Some(place) => {
                if let Some(node) = self.nodes.get(&place.node) {
                    // A key is never too long.
                    let _ = node.link.send(&ToWorker::Stop(key.into()));
                }
            }
            None => {
                self.waiting.retain(|waiting| *waiting != key);
                self.finish(key, AttemptEnd::without_run(key, AttemptOutcome::Cancelled));
            }
        }
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.nodes.is_empty() && self.reports.places() == 0 {
                let reason = self.last_failure.as_deref().unwrap_or("none was given");
                return Err(io::Error::other(format!("no node is left: {reason}")));
            }
            let now = Instant::now();
            let silent = self.check_silence(now);
            if !self.events.is_empty() {
                continue;
            }
            let reports = self.reports.take(until.into_iter().chain(silent).min());
            if reports.is_empty() {
                let is_early = silent.is_some_and(|silent| silent <= Instant::now())
                    && until.is_none_or(|until| until > Instant::now());
                if !is_early {
                    return Ok(None);
                }
            }
            for report in reports {
                self.take(report);
            }
        }
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        let reports = Arc::clone(&self.reports);
        Ok(Box::new(move || reports.wake()))
    }

    fn expects_events(&self) -> bool {
        true
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.reports.close();
        for node in self.nodes.values() {
            // It has no fields.
            let _ = node.link.send(&ToWorker::End);
        }
        let until = Instant::now() + END_WAIT;
        while !self.nodes.is_empty() {
            let left: Vec<_> = self.reports.take(Some(until)).into();
            for report in left {
                if let Report::Left { node, .. } = report {
                    self.nodes.remove(&node);
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        for node in std::mem::take(&mut self.nodes).into_values() {
            node.link.close();
        }
        for thread in self.threads.drain(..) {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}
