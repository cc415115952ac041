//! The nodes of a batch: how many there are, and how they are reached.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipewright_batch::{Executor, LocalSettings, Machines};

use super::reports::{Origin, Reports};
use super::slurm::{Cluster, Slurm};
use super::via::{Delivery, Via};
use super::{Remote, connector};
use crate::program::Program;

/// The time that a node has beyond the grace of a stop: for the rest of the output, and for the way of the end to the host.
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

    /// Adds a node. The command connects its stdin and stdout to a program there, whose words are added to its own: `ssh n1`,
    /// `docker exec -i c`, `kubectl exec -i pod --`.
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

    /// Sets the number of jobs that each node runs at once. The default is the number of processors that the worker there may use.
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
            reports.add_thread(connector::spawn(&reports, &settings, via)?);
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
