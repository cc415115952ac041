//! Allocations of Slurm: asks for nodes, waits for them, starts workers on them, gives them back.
//!
//! Everything goes through Slurm's own commands, each under a timeout. Nothing here knows the protocol of the workers:
//! a worker is a command line. Its secret is never in that line, nor in a script: write it to a `SecretFile` and pass
//! the path.
//!
//! An allocation runs one of two scripts. `dial_back_script` starts a worker on each node, and ends with the last of
//! them. `holding_script` starts nothing: `srun_on_node` is the command that starts a worker on one node and connects
//! it to its own stdin and stdout. Both end by themselves if this process is killed, so the nodes are not kept for
//! nothing.
//!
//! The script runs on the first node. If that node is lost, Slurm keeps the allocation on the others (`--no-kill`),
//! without a script: then only [`Allocation::end`](allocation::Allocation::end), the drop or the time limit gives the
//! nodes back. An `srun` that waits for a lost node does not end: use the state of the job and its own connection, and
//! kill it.
//!
//! | file | contents |
//! |---|---|
//! | `allocation.rs` | an allocation: submitted or adopted, and given back; its scripts, the commands that start workers, and their secret |
//! | `client.rs` | one call of a command of Slurm, and the error of all calls; the network of the controller |
//! | `job.rs` | a job as `scontrol show job` prints it: its state and times |

mod allocation;
mod client;
mod job;

pub(crate) use allocation::{
    Allocation, AllocationRequest, Connection, GrantedNodes, IDLE_TIME, SecretFile,
    dial_back_script, holding_script, srun_on_all_nodes, srun_on_node,
};
pub(crate) use client::{SlurmError, controller_address};
pub(crate) use job::{JobInfo, Phase, SlurmState};

#[cfg(test)]
mod tests;
