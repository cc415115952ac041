//! The executor that runs attempts on other machines; the settings: which nodes, and how they are reached.
//!
//! One thread runs the batch, and takes the reports of all connections. Each connection has a thread that reads and one
//! that writes, so a slow node, network or disk holds up no beat.
//!
//! | file | contents |
//! |---|---|
//! | `placing.rs` | which node runs an attempt |
//! | `transfers.rs` | files that attempts get and leave |
//! | `losing.rs` | nodes that are drained, silent or gone, and the end of all |
//! | `reports.rs` | the reports of all connections |
//! | `link.rs` | a connection to a worker; connects a node, again and again |
//! | `via.rs` | workers over the stdio of a command, and the way of the program there |
//! | `slurm.rs` | the nodes of a Slurm allocation |
//! | `listener.rs` | workers that connect by themselves |
//! | `liars.rs` | tests: nodes that lie |

pub(crate) mod link;
mod listener;
mod losing;
mod placing;
pub(crate) mod reports;
mod slurm;
mod transfers;
mod via;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pipewright::Source;
use pipewright_batch::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, JobFiles,
    LocalSettings, MachineMemory, Machines, OutputSink,
};

use crate::program::Program;
use crate::wire::{About, Ended, Stream, ToWorker};
use link::Link;
use placing::{End, Place, Placement};
use reports::{NodeId, Origin, Report, Reports};
use slurm::Cluster;
use via::{Delivery, Via};

pub use slurm::Slurm;

/// Runs attempts on other machines.
///
/// # Drop
/// Ends the workers, which kill what runs.
#[derive(Debug)]
pub(crate) struct Remote {
    reports: Arc<Reports>,
    patience: Duration,
    nodes: BTreeMap<NodeId, Node>,
    placement: Placement,
    attempts: HashMap<AttemptKey, Running>,
    /// The deadlines of the attempts that run.
    deadlines: BTreeSet<(Instant, AttemptKey)>,
    /// Attempts that no node has room for, in order.
    waiting: VecDeque<AttemptKey>,
    events: VecDeque<ExecutorEvent>,
    /// The capacity that was reported last.
    capacity: u32,
    /// The size of the largest node that was reported last, if no larger one can come.
    largest: Option<u32>,
    /// The end of the allocation, and the time limit of a fresh one. Nodes that a command reaches have no part in it.
    allocation: End,
    time_limit: Option<Duration>,
    is_verbose: bool,
    /// The reason of the connector that gave up last.
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
    /// The number of ends of attempts that do not run there.
    late_ends: u32,
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
    /// Everything that its start needs, until it is sent to its node.
    attempt: Option<Attempt>,
    /// The same without its output, of one that is placed first: its node may have no room.
    sent: Option<Attempt>,
    at_node: AtNode,
    /// The files that it leaves, and its directory there, once it has begun.
    files: JobFiles,
    current_dir: Option<PathBuf>,
    /// Its files are on their way to its node, or from there, while this is there.
    transfer: Option<Arc<()>>,
    /// The end that is reported once its files are here.
    ended: Option<Box<AttemptEnd>>,
    /// It begins only when it is told to.
    is_placed_first: bool,
    cpus: u32,
    /// The time at which its end has to be here, whatever the node does.
    deadline: Option<Instant>,
}

/// The state of an attempt that has been sent to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtNode {
    Begun,
    /// It has not begun, and waits for room.
    Displaced,
    /// It has room, and waits for its begin.
    Placed,
}

impl Running {
    fn has_begun(&self) -> bool {
        self.attempt.is_none() && self.at_node == AtNode::Begun
    }

    /// Returns true if it has been sent to that node, and has not ended there.
    fn is_at(&self, node: NodeId) -> bool {
        self.attempt.is_none()
            && self.ended.is_none()
            && self.place.is_some_and(|place| place.node == node)
    }
}

impl Remote {
    /// `patience`: the time from the moment at which an attempt should be stopped to the report of its end.
    pub(super) fn new(reports: Arc<Reports>, patience: Duration, is_verbose: bool) -> Remote {
        Remote {
            reports,
            patience,
            nodes: BTreeMap::new(),
            placement: Placement::default(),
            attempts: HashMap::new(),
            deadlines: BTreeSet::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            capacity: 0,
            largest: None,
            allocation: End::Never,
            time_limit: None,
            is_verbose,
            last_failure: None,
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Joined { node, about, link } => self.join(node, about, link),
            Report::Output { node, key, stream, bytes } => self.output(node, key, stream, &bytes),
            Report::Ended { node, end } => self.ended(node, *end),
            Report::Displaced { node, key } => self.displaced(node, key),
            Report::Placed { node, key } => self.placed_there(node, key),
            Report::Files { node, key, files, failure } => {
                self.files_moved(node, key, files, failure);
            }
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
            Report::Submitted => self.allocation = End::Unknown,
            Report::Deadline { at, limit } => {
                self.allocation = at.map_or(End::Never, End::At);
                self.time_limit = limit;
                self.placement.set_end(self.allocation);
                self.place_waiting();
            }
            Report::Refused { peer, error } if self.is_verbose => {
                let note = format!("a connection of {peer} was refused: {error}");
                self.events.push_back(ExecutorEvent::Note(note));
            }
            Report::Detail(text) if self.is_verbose => {
                self.events.push_back(ExecutorEvent::Note(text));
            }
            Report::Refused { .. } | Report::Detail(_) => {}
            Report::GaveUp { label, error } => {
                self.events.push_back(ExecutorEvent::Note(format!("{label}: {error}; given up")));
                self.last_failure = Some(format!("{label}: {error}"));
                self.report_capacity();
                self.place_waiting();
            }
        }
    }

    fn join(&mut self, id: NodeId, about: About, link: Link) {
        // A node that comes back gets its name again.
        let is_here = |node: &Node| !matches!(node.state, NodeState::Disconnected(_));
        let is_taken =
            |name: &str| self.nodes.values().any(|node| node.name == name && is_here(node));
        let name = match is_taken(&about.node) {
            true => format!("{}#{id}", about.node),
            false => about.node,
        };
        let jobs = if about.slots == 1 { "job" } else { "jobs" };
        let note = format!("node {name}: {} {jobs} at once", about.slots);
        self.events.push_back(ExecutorEvent::Note(note));
        let state = NodeState::Connected;
        let allocation = (link.origin() == Origin::Allocation).then_some(self.allocation);
        self.nodes.insert(id, Node { name, link, state, running: 0, late_ends: 0 });
        self.placement.add(id, about.slots.max(1), allocation);
        self.place_waiting();
        self.report_capacity();
    }

    fn output(&mut self, id: NodeId, key: AttemptKey, stream: Stream, bytes: &[u8]) {
        if let Some(node) = self.nodes.get(&id) {
            node.link.allow(bytes.len() as u64);
        }
        let source = match stream {
            Stream::Stdout => Source::Stdout,
            Stream::Stderr => Source::Stderr,
        };
        let running = self.attempts.get_mut(&key);
        let running = running.filter(|running| running.place.is_some_and(|it| it.node == id));
        if let Some(output) = running.and_then(|running| running.output.as_mut()) {
            output.write(source, bytes);
        }
    }

    fn ended(&mut self, id: NodeId, ended: Ended) {
        let key = ended.end.key;
        // One that has not begun there cannot have ended there.
        let runs_here = |running: &Running| running.is_at(id);
        let Some(node) =
            self.nodes.get(&id).filter(|_| self.attempts.get(&key).is_some_and(runs_here))
        else {
            return self.late_end(id, key);
        };
        let (mut end, files) = ended.arrived(&node.name);
        // An engine that ends an allocation sends SIGTERM to the jobs, too, and a shell or a handler makes any code of
        // it. They have not failed.
        let is_draining = matches!(node.state, NodeState::Draining);
        if is_draining && end.outcome.may_be_told_to_end() {
            end.outcome = AttemptOutcome::Lost(format!("node {}: it was asked to end", node.name));
            end.is_lost_with_node = true;
        }
        let output = self.attempts.get_mut(&key).and_then(|running| running.output.as_mut());
        if let (Some(output), Some(files)) = (output, files) {
            output.written(files);
        }
        self.fetch_or_finish(key, end);
        self.release_if_drained(id);
    }

    /// Ends an attempt: its output, its room, and its event.
    fn finish(&mut self, key: AttemptKey, end: AttemptEnd) {
        let Some(running) = self.attempts.remove(&key) else { return };
        drop(running.output);
        if let Some(at) = running.deadline {
            self.deadlines.remove(&(at, key));
        }
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

    fn report_capacity(&mut self) {
        let capacity = self.placement.capacity();
        if capacity != self.capacity {
            self.capacity = capacity;
            self.events.push_back(ExecutorEvent::Capacity { cpus: capacity });
        }
        // The nodes of an allocation come one after the other, and another allocation may have others.
        let is_allocated = self.allocation == End::Unknown || self.time_limit.is_some();
        let largest = self.final_largest().filter(|_| !is_allocated);
        if largest != self.largest {
            self.largest = largest;
            self.events.push_back(ExecutorEvent::Largest { cpus: largest });
        }
    }
}

impl Executor for Remote {
    fn start(&mut self, attempt: Attempt) {
        self.add(attempt, false);
    }

    fn places_first(&self) -> bool {
        true
    }

    fn place(&mut self, attempt: Attempt) {
        self.add(attempt, true);
    }

    fn begin(&mut self, key: AttemptKey) {
        self.begin_there(key);
    }

    /// Returns `None`: nodes do not report it.
    fn memory(&mut self) -> Option<MachineMemory> {
        None
    }

    fn stop(&mut self, key: AttemptKey) {
        let Some(running) = self.attempts.get(&key) else { return };
        match running.place.filter(|_| running.attempt.is_none()) {
            Some(_) if running.ended.is_some() => self.stop_fetching(key),
            Some(place) => {
                self.set_deadline(key, Duration::ZERO);
                if let Some(node) = self.nodes.get(&place.node) {
                    // A key is never too long.
                    let _ = node.link.send(&ToWorker::Stop(key));
                }
            }
            None => {
                let node = running.place.map(|place| place.node);
                let before = match running.transfer {
                    Some(_) => "its files were there",
                    None => "a node had room for it",
                };
                self.waiting.retain(|waiting| *waiting != key);
                let outcome = AttemptOutcome::NotStarted(format!("it was stopped before {before}"));
                self.finish(key, AttemptEnd::without_run(key, outcome));
                node.into_iter().for_each(|node| self.release_if_drained(node));
            }
        }
    }

    fn waiting(&self) -> Vec<AttemptKey> {
        let has_not_begun = self.attempts.iter().filter(|(_, running)| !running.has_begun());
        has_not_begun.map(|(key, _)| *key).collect()
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.nodes.is_empty() && self.reports.are_over() {
                let reason = self.last_failure.as_deref().unwrap_or("none was given");
                return Err(io::Error::other(format!("no node is left: {reason}")));
            }
            let now = Instant::now();
            let silent = self.check_silence(now).into_iter().chain(self.check_deadlines(now)).min();
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

/// The time that a node has beyond the grace of a stop: for the rest of the output, and for the way of the end to the
/// host.
const END_MARGIN: Duration = Duration::from_secs(5);

/// The nodes that run a batch, instead of this machine.
///
/// ```no_run
/// use pipewright_batch::{Batch, Job};
/// use pipewright_cluster::Nodes;
/// let nodes = Nodes::new().via(["ssh", "n1"]).via(["ssh", "n2"]);
/// let summary = Batch::new().nodes(nodes).run(["uptime"].map(Job::new))?;
/// assert_eq!(summary.succeeded, 1);
/// # Ok::<(), pipewright_batch::BatchError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nodes do nothing until a batch is started on them"]
pub struct Nodes {
    commands: Vec<Vec<OsString>>,
    worker_path: Option<PathBuf>,
    slots: Option<u32>,
    slurm: Option<Slurm>,
    is_verbose: bool,
}

impl Nodes {
    /// Creates an empty list.
    pub fn new() -> Nodes {
        Nodes::default()
    }

    /// Adds a node. The command connects its stdin and stdout to a program there, whose words are added to its own:
    /// `ssh n1`, `docker exec -i c`, `kubectl exec -i pod --`.
    ///
    /// The program is `sh`, which gets a copy of this program, kept in the cache folder of the node. It is copied once.
    pub fn via<I>(mut self, command: I) -> Nodes
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        self.commands.push(command.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the path of pipewright on the nodes. Nothing is copied there, and no shell is needed.
    pub fn worker_path(mut self, path: impl Into<PathBuf>) -> Nodes {
        self.worker_path = Some(path.into());
        self
    }

    /// Adds the nodes of a Slurm allocation.
    pub fn slurm(mut self, slurm: Slurm) -> Nodes {
        self.slurm = Some(slurm);
        self
    }

    /// Adds notes about addresses and refused connections.
    pub fn verbose(mut self) -> Nodes {
        self.is_verbose = true;
        self
    }

    /// Sets the number of jobs that each node runs at once. The default is the number of processors that the worker
    /// there may use.
    pub fn slots_per_node(mut self, count: u32) -> Nodes {
        self.slots = Some(count.max(1));
        self
    }
}

impl Machines for Nodes {
    fn connect(&self, settings: &LocalSettings) -> io::Result<Box<dyn Executor>> {
        let has_nodes = !self.commands.is_empty() || self.slurm.is_some();
        if self.commands.iter().any(Vec::is_empty) || !has_nodes {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no node"));
        }
        // A worker waits for room before the start, and the end of an attempt comes after its output.
        let patience = settings.room_timeout + settings.kill_grace + END_MARGIN;
        let settings = settings.clone();
        let reports = Reports::new();
        let delivery = match &self.worker_path {
            Some(path) => Delivery::Path(path.clone()),
            None if self.commands.is_empty() => Delivery::Complete,
            None => Delivery::Copy(Arc::new(Program::own()?)),
        };
        for words in &self.commands {
            let via = Via {
                words: words.clone(),
                delivery: delivery.clone(),
                slots: self.slots,
                reports: Arc::clone(&reports),
                origin: Origin::Command,
                running: Mutex::default(),
                name: None,
            };
            reports.add_thread(link::spawn(&reports, &settings, via)?);
        }
        if let Some(slurm) = self.slurm.clone() {
            let worker = self.worker_path.clone().map_or_else(std::env::current_exe, Ok)?;
            let cluster = Cluster {
                slurm,
                worker,
                slots: self.slots,
                reports: Arc::clone(&reports),
                settings: settings.clone(),
            };
            reports.add_thread(cluster.spawn()?);
        }
        Ok(Box::new(Remote::new(reports, patience, self.is_verbose)))
    }
}

#[cfg(test)]
mod liars;
