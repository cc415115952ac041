//! The nodes of a Slurm allocation: asks for it, starts a worker on each node, watches it, and asks for another one
//! when it has ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use pipewright::{CancelToken, Child, Command, Contain, Scope, Stdio};
use pipewright_batch::LocalSettings;
use pipewright_os::base::error::Quoted;
use pipewright_os::base::private_file;

use super::link;
use super::listener::Listener;
use super::reports::{Origin, Report, Reports};
use super::via::{Delivery, Via};
use crate::sealed::Secret;
use crate::slurm::{
    Allocation, AllocationRequest, Connection, GrantedNodes, IDLE_TIME, JobInfo, Phase, SecretFile,
    SlurmError, SlurmState, controller_address, dial_back_script, holding_script,
    srun_on_all_nodes, srun_on_node,
};

/// The time between two questions for the state of the allocation.
const LOOK: Duration = Duration::from_secs(2);

/// Allocations in a row without any worker after which the batch gives up.
const MOST_EMPTY: u32 = 3;

/// The time in which an allocation ends by itself after its workers.
const END_WAIT: Duration = Duration::from_secs(2);

/// The time that the processes of an allocation may take to end.
const FINAL_WAIT: Duration = Duration::from_secs(60);

/// Everything that the thread of an allocation needs.
pub(super) struct Cluster {
    pub(super) slurm: Slurm,
    pub(super) worker: PathBuf,
    pub(super) slots: Option<u32>,
    pub(super) reports: Arc<Reports>,
    pub(super) settings: LocalSettings,
}

/// The end of an allocation.
enum Ended {
    /// The batch is over.
    WithBatch,
    /// By itself, in that state. `None`: Slurm has forgotten it.
    InState(Option<SlurmState>),
}

/// The port, and the file with the secret.
struct Port {
    listener: Listener,
    file: SecretFile,
}

impl Cluster {
    /// Starts the thread.
    ///
    /// # Errors
    /// No more threads are available.
    pub(super) fn spawn(self) -> io::Result<thread::JoinHandle<()>> {
        self.reports.add_connector(Origin::Allocation);
        let run = move || {
            let error = match self.run() {
                Ok(()) => return,
                Err(error) => error.to_string(),
            };
            self.reports.give_up(Origin::Allocation, "slurm".to_owned(), error);
        };
        thread::Builder::new().name("slurm".to_owned()).stack_size(512 << 10).spawn(run)
    }

    fn run(&self) -> Result<(), ClusterError> {
        let cancel = CancelToken::new();
        let on_close = cancel.clone();
        self.reports.on_close(move || on_close.cancel());
        let folder = shared_folder().map_err(cannot("make the cache folder"))?;
        let port = match self.slurm.over_stdio {
            true => None,
            false => Some(self.open_port(&folder, &cancel)?),
        };
        let output = folder.join(format!("slurm-{}.out", std::process::id()));
        let _output = Removed(&output);
        let mut empty = 0;
        loop {
            let before = self.reports.joined();
            let Ended::InState(state) =
                self.run_allocation(port.as_ref(), &output, before, &cancel)?
            else {
                return Ok(());
            };
            let is_empty = self.reports.joined() == before;
            empty = if is_empty { empty + 1 } else { 0 };
            // The output of a script that has ended in order explains nothing.
            let words = match state {
                Some(SlurmState::Completed) => None,
                _ => last_line(&output),
            };
            let words = words.map(|line| format!(": {line}")).unwrap_or_default();
            let name = state.as_ref().map_or("gone".to_owned(), ToString::to_string);
            let is_final = match state {
                Some(SlurmState::Cancelled) => true,
                // The script fails in the same way again.
                Some(SlurmState::Failed) if is_empty => true,
                _ => empty >= MOST_EMPTY || Allocation::current().is_some(),
            };
            if is_final {
                return Err(ClusterError::Ended(format!("the allocation is {name}{words}")));
            }
            self.reports
                .note(format!("slurm: the allocation is {name}{words}; asking for another"));
        }
    }

    fn open_port(&self, folder: &Path, cancel: &CancelToken) -> Result<Port, ClusterError> {
        let address = match self.slurm.address {
            Some(address) => address,
            None => controller_address(cancel)?.ok_or(ClusterError::NoAddress)?,
        };
        let secret = Secret::random().map_err(cannot("make a secret"))?;
        let file = SecretFile::create(folder, secret.to_text().as_bytes())?;
        let address = SocketAddr::new(address, 0);
        let listener = Listener::open(address, &self.reports, &self.settings, secret)
            .map_err(|source| ClusterError::Listen { address: address.ip(), source })?;
        self.reports.detail(format!("workers connect to {}", listener.address()));
        Ok(Port { listener, file })
    }

    /// Returns the words of a worker.
    fn worker(&self, port: Option<&Port>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.worker.clone().into(), "worker".into()];
        match port {
            Some(Port { listener, file }) => {
                words.extend(["--connect".into(), listener.address().to_string().into()]);
                words.extend(["--secret-file".into(), file.path().into()]);
            }
            None => words.push("--stdio".into()),
        }
        if let Some(slots) = self.slots {
            words.extend(["--slots".into(), slots.to_string().into()]);
        }
        words
    }

    /// Runs one allocation to its end. `joined`: the number of nodes that have come before.
    fn run_allocation(
        &self,
        port: Option<&Port>,
        output: &Path,
        joined: u64,
        cancel: &CancelToken,
    ) -> Result<Ended, ClusterError> {
        let worker = self.worker(port);
        let current = Allocation::current();
        let is_adopted = current.is_some();
        let allocation = match current {
            Some(allocation) => allocation,
            None => {
                let script = match port {
                    Some(_) => dial_back_script(&worker),
                    None => holding_script(IDLE_TIME),
                };
                let request = AllocationRequest {
                    nodes: self.slurm.nodes,
                    arguments: self.slurm.arguments.clone(),
                    script,
                    output: output.to_owned(),
                };
                Allocation::submit(&request, cancel)?
            }
        };
        let id = allocation.id();
        self.reports.add([Report::Submitted]);
        let mut last_reason = None;
        let waiting = |job: &JobInfo| {
            if job.reason.is_some() && job.reason != last_reason {
                let text = job.reason.as_deref().unwrap_or_default();
                self.reports.note(format!("slurm: job {id} waits: {text}"));
                last_reason.clone_from(&job.reason);
            }
        };
        // A worker that is there says sooner that the nodes are.
        let pause = |time| self.reports.pause_until_joined(time, joined);
        let granted = match allocation.wait_until_granted(cancel, pause, waiting) {
            Ok(granted) => granted,
            // Its nodes came and went between two questions.
            Err(SlurmError::Ended { state, .. }) => {
                return Ok(Ended::InState(Some(final_state(&allocation, state, cancel))));
            }
            Err(SlurmError::Cancelled) => {
                // Ignored: the script of the allocation ends it.
                let _ = allocation.end();
                return Ok(Ended::WithBatch);
            }
            Err(error) => return Err(error.into()),
        };
        let list = granted.job.node_list.as_deref().unwrap_or_default();
        self.reports.note(format!("slurm: job {id} has {list}"));
        self.report_deadline(&granted.job);
        let mut workers = Workers::default();
        if port.is_none() {
            for node in &granted.names {
                self.connect_over_stdio(&allocation, node, &worker)?;
            }
        } else if is_adopted {
            let count = u32::try_from(granted.names.len()).unwrap_or(u32::MAX);
            workers.start(srun_on_all_nodes(id, count, &worker))?;
        }
        let worker = port.map(|_| &worker[..]);
        match self.watch(&allocation, &granted, worker, &mut workers, cancel) {
            Ended::WithBatch => {
                if port.is_some() && !is_adopted {
                    wait_for_end(&allocation);
                }
                // Ignored: the script of the allocation ends it.
                let _ = allocation.end();
                Ok(Ended::WithBatch)
            }
            Ended::InState(state) => {
                let state = state.map(|state| final_state(&allocation, state, cancel));
                Ok(Ended::InState(state))
            }
        }
    }

    fn connect_over_stdio(
        &self,
        allocation: &Allocation,
        node: &str,
        worker: &[OsString],
    ) -> Result<(), ClusterError> {
        let via = Via {
            words: srun_on_node(allocation.id(), node, Connection::Stdio, worker),
            delivery: Delivery::Complete,
            slots: None,
            reports: Arc::clone(&self.reports),
            origin: Origin::Allocation,
            running: Mutex::default(),
            name: Some(format!("node {node}")),
        };
        let thread = link::spawn(&self.reports, &self.settings, via);
        self.reports.add_thread(thread.map_err(cannot("start a thread"))?);
        Ok(())
    }

    fn report_deadline(&self, job: &JobInfo) {
        let now = Instant::now();
        let left = job.time_left();
        let at = left.and_then(|left| now.checked_add(left));
        self.reports.add([Report::Deadline { at, limit: job.time_limit }]);
    }

    /// Watches an allocation, and starts workers again that are missing. Never trusts the end of an `srun`: the
    /// controller knows.
    fn watch(
        &self,
        allocation: &Allocation,
        granted: &GrantedNodes,
        worker: Option<&[OsString]>,
        workers: &mut Workers,
        cancel: &CancelToken,
    ) -> Ended {
        loop {
            if cancel.wait_for(LOOK) {
                return Ended::WithBatch;
            }
            match allocation.look(cancel) {
                Ok(job) if job.phase() == Phase::Ended => return Ended::InState(Some(job.state)),
                Err(SlurmError::UnknownJob(_)) => return Ended::InState(None),
                // A controller that is away says nothing about the nodes: their connections do.
                Ok(_) | Err(_) => {}
            }
            let Some(worker) = worker else { continue };
            for node in workers.missing(&granted.names, &self.reports.connected()) {
                self.reports.note(format!("slurm: starting a worker again on {node}"));
                let words = srun_on_node(allocation.id(), &node, Connection::DialBack, worker);
                if let Err(error) = workers.start(words) {
                    self.reports.note(format!("slurm: {error}"));
                }
            }
        }
    }
}

/// Returns the state in which an allocation ends, once its processes have ended.
fn final_state(allocation: &Allocation, mut state: SlurmState, cancel: &CancelToken) -> SlurmState {
    let until = Instant::now() + FINAL_WAIT;
    while state == SlurmState::Completing && Instant::now() < until {
        if cancel.wait_for(LOOK / 4) {
            break;
        }
        match allocation.look(cancel) {
            Ok(job) => state = job.state,
            // A controller that is away answers later.
            Err(error) if error.is_transient() => {}
            Err(_) => break,
        }
    }
    state
}

/// Waits for the end of an allocation whose workers have been told to end.
fn wait_for_end(allocation: &Allocation) {
    let (cancel, until) = (CancelToken::new(), Instant::now() + END_WAIT);
    while Instant::now() < until {
        match allocation.look(&cancel) {
            Ok(job) if job.phase() != Phase::Ended => thread::park_timeout(LOOK / 20),
            _ => return,
        }
    }
}

/// Returns a folder that all nodes see, on a cluster whose home directories are shared.
fn shared_folder() -> io::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = cache.filter(|path| path.is_absolute()).or_else(home);
    let Some(cache) = cache else { return std::env::current_dir() };
    fs::create_dir_all(&cache)?;
    let folder = cache.join("pipewright");
    // Where the cache folder is shared, another user could have made it, and read or replace the secret.
    private_file::create_folder(&folder).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", Quoted(folder.as_os_str())))
    })?;
    Ok(folder)
}

/// Returns the line of the output of an allocation that says most: the last one that is not about a task's exit code.
fn last_line(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(path).ok()?).into_owned();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().rfind(|line| !line.starts_with("srun: ")).or_else(|| lines().next_back())?;
    Some(line.chars().take(300).collect())
}

/// Removes a file in the end.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        // Ignored: there may be none.
        let _ = fs::remove_file(self.0);
    }
}

/// Settings of a batch on Slurm.
///
/// ```no_run
/// use pipewright_batch::{Batch, Job};
/// use pipewright_cluster::{Nodes, Slurm};
/// let nodes = Nodes::new().slurm(Slurm::new(4).argument("--time=10"));
/// Batch::new().nodes(nodes).run((0..100).map(|number| Job::new("./simulate").arg(number.to_string())))?;
/// # Ok::<(), pipewright_batch::BatchError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Slurm {
    nodes: u32,
    arguments: Vec<OsString>,
    over_stdio: bool,
    address: Option<IpAddr>,
}

impl Slurm {
    /// Describes an allocation of this many nodes. Inside an allocation, that one is used, and no other is requested.
    pub fn new(nodes: u32) -> Slurm {
        Slurm { nodes: nodes.max(1), arguments: Vec::new(), over_stdio: false, address: None }
    }

    /// Adds an option for `sbatch`.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Slurm {
        self.arguments.push(argument.into());
        self
    }

    /// Speaks to workers over the stdin and stdout of `srun`, for nodes that cannot connect to this machine.
    pub fn over_stdio(mut self) -> Slurm {
        self.over_stdio = true;
        self
    }

    /// Sets the address at which workers connect. The default is the one that this machine has on the network of
    /// Slurm's controller.
    pub fn listen_on(mut self, address: IpAddr) -> Slurm {
        self.address = Some(address);
        self
    }
}

/// The time without a worker after which one is started again on its node.
const MISSING: Duration = Duration::from_secs(10);

/// Commands that have started workers.
#[derive(Debug, Default)]
struct Workers {
    children: Vec<Child>,
    /// The time since which a node has no worker, and the pause before the next try.
    missing: HashMap<String, (Instant, Duration)>,
}

impl Workers {
    /// Starts a command.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self, words: Vec<OsString>) -> Result<(), SlurmError> {
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .own_session()
            .contain(Contain::Tree)
            .kill_on_parent_exit(Scope::Tree)
            .spawn()
            .map_err(SlurmError::Start)?;
        // Those that have ended are reaped by this.
        self.children.retain(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.children.push(child);
        Ok(())
    }

    /// Returns the nodes that have had no worker for some time, and longer after each try.
    fn missing(&mut self, nodes: &[String], connected: &[String]) -> Vec<String> {
        let now = Instant::now();
        self.missing.retain(|node, _| !connected.contains(node));
        let lacking = nodes.iter().filter(|node| !connected.contains(node));
        lacking
            .filter(|node| {
                let (since, pause) = self.missing.entry((*node).clone()).or_insert((now, MISSING));
                let is_due = now.duration_since(*since) >= *pause;
                if is_due {
                    (*since, *pause) = (now, pause.saturating_mul(2).min(MISSING * 12));
                }
                is_due
            })
            .cloned()
            .collect()
    }
}

/// An error that ends the search for nodes.
#[derive(Debug)]
enum ClusterError {
    Slurm(SlurmError),
    Io { action: &'static str, source: io::Error },
    Listen { address: IpAddr, source: io::Error },
    NoAddress,
    Ended(String),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::Slurm(error) => error.fmt(f),
            ClusterError::Io { action, source } => write!(f, "cannot {action}: {source}"),
            ClusterError::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}")
            }
            ClusterError::NoAddress => f.write_str(
                "the address of this machine in the cluster is not known: name it with --listen",
            ),
            ClusterError::Ended(text) => f.write_str(text),
        }
    }
}

impl From<SlurmError> for ClusterError {
    fn from(error: SlurmError) -> ClusterError {
        ClusterError::Slurm(error)
    }
}

/// Makes an error of an action.
fn cannot(action: &'static str) -> impl FnOnce(io::Error) -> ClusterError {
    move |source| ClusterError::Io { action, source }
}
