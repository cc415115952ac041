//! Batches on nodes. A node here is a worker on this machine, behind a command.
//!
//! | file | contents |
//! |---|---|
//! | `via.rs` | jobs on nodes end, print and fail as they do here |
//! | `connecting.rs` | nodes that cannot be used |
//! | `slurm.rs` | nodes of a Slurm cluster |
//! | `slurm_security.rs` | their port and their secret |
//! | `ssh.rs` | nodes behind a real sshd |
//! | `network.rs`, `cut.rs` | networks that are cut for a time |
//! | `output.rs` | output that nodes write to files themselves |
//! | `random_batches.rs` | random batches end as they do here |
//! | `crash.rs` | batches and workers that are killed at random moments |
//! | `lost.rs` | nodes that are killed, stopped or drained, and batches that are |

mod connecting;
mod crash;
mod cut;
mod lost;
mod network;
mod output;
mod random_batches;
mod slurm;
mod slurm_security;
mod ssh;
mod via;

use std::process::Command;

use super::Watchdog;
use super::trees::{MARK, mark, marked, until};
use super::{Place, err, out, pace, sorted};

const TOOL: &str = env!("CARGO_BIN_EXE_pipewright");

/// Returns the options for `count` nodes, each with two slots. A node writes the pid of its worker to the file `workers`.
fn nodes(count: usize) -> Vec<String> {
    let mut options = vec!["-j2".to_owned(), "--worker-path".to_owned(), TOOL.to_owned()];
    for node in 1..=count {
        let script = format!(r#"echo $$ >> workers; NODE={node} exec "$@""#);
        options.extend(["--via".to_owned(), format!("sh -c '{script}' sh")]);
    }
    options
}

/// Returns `batch` on nodes, without progress.
fn batch_on(place: &Place, nodes: &[String], args: &[&str]) -> Command {
    let mut command = place.tool(&["batch", "--progress", "none"]);
    command.args(nodes).args(args);
    command
}

/// Returns the pids of the workers that have been started, in order.
fn workers(place: &Place) -> Vec<u32> {
    place.read("workers").lines().map(|pid| pid.parse().unwrap()).collect()
}

fn kill(pid: u32, signal: &str) {
    // Ignored: it may have ended.
    let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).output().unwrap();
}
