//! Scripts of allocations, and the commands that start workers on their nodes.

use std::ffi::OsString;
use std::time::Duration;

use pipewright_batch::shell_quoted;

use super::job::JobNumber;

/// Options of each `srun` that starts workers.
///
/// A worker that fails, or a node that is lost, must not end the others; `--wait=0` and `--kill-on-bad-exit=0` replace what
/// the site or the user's environment says. `--overlap` lets a worker start again beside others. The worker itself decides
/// about processors, so `--cpu-bind=none`. `--export=ALL`: an allocation that was submitted with `--export=NONE` would start
/// workers without PATH.
const SRUN_OPTIONS: [&str; 10] = [
    "--overlap",
    "--ntasks-per-node=1",
    "--kill-on-bad-exit=0",
    "--no-kill",
    "--wait=0",
    "--cpu-bind=none",
    "--mpi=none",
    "--export=ALL",
    "--job-name=pipewright",
    "--quiet",
];

/// The connection between a worker and this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The worker connects to this process by itself. It has no input.
    DialBack,
    /// The stdin and stdout of `srun` are those of the worker.
    Stdio,
}

/// Returns the script of an allocation whose workers dial back: one on each node. It ends with the last of them, and so does
/// the allocation.
pub(crate) fn dial_back_script(worker: &[OsString]) -> Vec<u8> {
    let mut script = b"#!/bin/sh\n\
        # Made by pipewright: a worker on each node. The allocation ends with the last of them.\n\
        exec srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" --input=none"
        .to_vec();
    for option in SRUN_OPTIONS {
        script.push(b' ');
        script.extend_from_slice(option.as_bytes());
    }
    script.push(b' ');
    script.extend_from_slice(&shell_quoted(worker));
    script.push(b'\n');
    script
}

/// The time for which an allocation without workers keeps its nodes: they start again within it.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(20);

/// Returns the script of an allocation whose workers [`srun_on_node`] starts. It ends that time after the last of them, or
/// after its own start if there is none: [`IDLE_TIME`]. Seconds count.
pub(crate) fn holding_script(idle: Duration) -> Vec<u8> {
    let idle = idle.as_secs();
    // Steps have numbers; the script itself is `.batch`. Without an answer of the controller there may be steps.
    format!(
        r#"#!/bin/sh
# Made by pipewright: keeps the nodes while a worker runs, and for {idle} s after the last of them.
last=$(date +%s)
while [ $(($(date +%s) - last)) -lt {idle} ]; do
    sleep 3
    if steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i); then
        case $steps in *.[0-9]*) ;; *) continue ;; esac
    fi
    last=$(date +%s)
done
"#
    )
    .into_bytes()
}

/// Returns the command that starts a worker on one node of an allocation.
pub(crate) fn srun_on_node(
    id: JobNumber,
    node: &str,
    connection: Connection,
    worker: &[OsString],
) -> Vec<OsString> {
    let place = [format!("--nodelist={node}"), "--nodes=1".to_owned(), "--ntasks=1".to_owned()];
    srun(id, &place, connection, worker)
}

/// Returns the command that starts a worker on each node of an allocation that this process has not submitted.
pub(crate) fn srun_on_all_nodes(
    id: JobNumber,
    node_count: u32,
    worker: &[OsString],
) -> Vec<OsString> {
    let place = [format!("--nodes={node_count}"), format!("--ntasks={node_count}")];
    srun(id, &place, Connection::DialBack, worker)
}

fn srun(
    id: JobNumber,
    place: &[String],
    connection: Connection,
    worker: &[OsString],
) -> Vec<OsString> {
    let connected = match connection {
        Connection::DialBack => "--input=none",
        Connection::Stdio => "--unbuffered",
    };
    let mut words: Vec<OsString> = vec!["srun".into(), format!("--jobid={id}").into()];
    words.extend(place.iter().map(OsString::from));
    words.push(connected.into());
    words.extend(SRUN_OPTIONS.iter().map(OsString::from));
    words.extend_from_slice(worker);
    words
}
