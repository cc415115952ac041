//! Tests with recorded texts, and tests with a cluster: `bash ci/slurm.sh cargo test -p pipewright-cluster slurm`.

mod call;
mod cluster;
mod job;
mod nodes;
mod script;
mod stdio;
mod time;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pipewright::{CancelToken, Command};
use pipewright_tests::{skip, watchdog};
use tempfile::TempDir;

use super::allocation::{Allocation, AllocationRequest, GrantedNodes};
use super::job::JobInfo;
use super::state::SlurmState;

/// The program of `ci/slurm.sh` that kills and starts the daemons of nodes.
const NODE: &str = "PIPEWRIGHT_SLURM_NODE";

/// The cluster, for one test at a time.
struct Cluster {
    /// A folder that all nodes see.
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Returns the cluster, or reports that the test is skipped.
fn cluster() -> Option<Cluster> {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os(NODE).is_none() {
        skip::skipped(
            skip::Need::Slurm,
            "needs a Slurm cluster: bash ci/slurm.sh cargo test -p pipewright-cluster slurm",
        );
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster { folder: tempfile::tempdir().unwrap(), _alone: alone };
    // A node may still end a job of the test before.
    watchdog::until("all nodes are idle", || {
        sinfo() == "idle 4" && Command::new("squeue").arg("--noheader").read().unwrap().is_empty()
    });
    Some(cluster)
}

/// Returns the states of the nodes and their numbers.
fn sinfo() -> String {
    Command::new("sinfo").args(["--noheader", "--format=%T %D"]).read().unwrap()
}

impl Cluster {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file in the folder.
    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn request(&self, nodes: u32, script: Vec<u8>) -> AllocationRequest {
        let output = self.file("output");
        AllocationRequest { nodes, arguments: Vec::new(), script, output }
    }

    fn submit(&self, nodes: u32, script: Vec<u8>) -> Allocation {
        Allocation::submit(&self.request(nodes, script), &never()).unwrap()
    }

    /// Returns the names of the files that begin so, in order.
    fn files(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let names = entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|it| it.starts_with(prefix)).collect();
        names.sort();
        names
    }

    /// Kills the daemon of a node and its steps, or starts the daemon.
    fn node(&self, action: &str, name: &str) {
        Command::new(std::env::var_os(NODE).unwrap()).args([action, name]).run().unwrap();
    }
}

/// Returns a token that nothing cancels.
fn never() -> CancelToken {
    CancelToken::new()
}

fn granted(allocation: &Allocation) -> GrantedNodes {
    allocation.wait_until_granted(&never(), asleep, |_| ()).unwrap()
}

/// Waits for the state, and returns the job.
fn in_state(allocation: &Allocation, state: SlurmState) -> JobInfo {
    let mut job = allocation.look(&never()).unwrap();
    watchdog::until(&format!("the job is {state}"), || {
        job = allocation.look(&never()).unwrap();
        job.state == state
    });
    job
}

/// Returns a worker that runs a script of the shell, whose `$0` is the folder. `$node` is the name of the node.
fn shell(cluster: &Cluster, script: &str) -> Vec<OsString> {
    let script = format!("node=$SLURMD_NODENAME; {script}");
    vec!["sh".into(), "-c".into(), script.into(), cluster.path().into()]
}

/// Waits for that time, and asks again.
fn asleep(pause: std::time::Duration) -> bool {
    std::thread::park_timeout(pause);
    false
}
