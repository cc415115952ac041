//! The states of a job, and what each means for an allocation.

use std::fmt;

/// The state of a job, as Slurm names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlurmState {
    /// The job waits for nodes.
    Pending,
    /// The job has nodes, which boot.
    Configuring,
    /// The job runs.
    Running,
    /// The job has nodes, and its processes are stopped.
    Suspended,
    /// The job ends, and some of its processes still run.
    Completing,
    /// The script exited with code 0.
    Completed,
    /// A user or an administrator cancelled the job.
    Cancelled,
    /// The script exited with another code, or was killed.
    Failed,
    /// The time limit of the job was reached.
    Timeout,
    /// A node of the job failed.
    NodeFail,
    /// Another job took the nodes.
    Preempted,
    /// The nodes did not boot.
    BootFail,
    /// The job could not end before its deadline.
    Deadline,
    /// A process of the job exceeded the memory limit.
    OutOfMemory,
    /// Another state, by its name.
    Other(String),
}

/// The part of its life that an allocation is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has no nodes that can be used yet.
    Waiting,
    /// It has nodes.
    Granted,
    /// It ends, or has ended: nothing more can be started.
    Ended,
}

/// The states with their names.
const NAMES: [(SlurmState, &str); 14] = [
    (SlurmState::Pending, "PENDING"),
    (SlurmState::Configuring, "CONFIGURING"),
    (SlurmState::Running, "RUNNING"),
    (SlurmState::Suspended, "SUSPENDED"),
    (SlurmState::Completing, "COMPLETING"),
    (SlurmState::Completed, "COMPLETED"),
    (SlurmState::Cancelled, "CANCELLED"),
    (SlurmState::Failed, "FAILED"),
    (SlurmState::Timeout, "TIMEOUT"),
    (SlurmState::NodeFail, "NODE_FAIL"),
    (SlurmState::Preempted, "PREEMPTED"),
    (SlurmState::BootFail, "BOOT_FAIL"),
    (SlurmState::Deadline, "DEADLINE"),
    (SlurmState::OutOfMemory, "OUT_OF_MEMORY"),
];

impl SlurmState {
    /// Reads the name of a state.
    pub(super) fn parse(name: &str) -> SlurmState {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map_or_else(|| SlurmState::Other(name.to_owned()), |(state, _)| state.clone())
    }

    /// Returns the phase of an allocation in this state. One that is unknown counts as ended: waiting for it to change could
    /// take forever.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            SlurmState::Pending | SlurmState::Configuring => Phase::Waiting,
            SlurmState::Running | SlurmState::Suspended => Phase::Granted,
            SlurmState::Other(name) => match name.as_str() {
                "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD" | "SPECIAL_EXIT"
                | "POWER_UP_NODE" => Phase::Waiting,
                "RESIZING" | "SIGNALING" | "STOPPED" => Phase::Granted,
                _ => Phase::Ended,
            },
            _ => Phase::Ended,
        }
    }
}

impl fmt::Display for SlurmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let SlurmState::Other(name) = self {
            return f.pad(name);
        }
        let known = NAMES.iter().find(|(state, _)| state == self);
        f.pad(known.map_or("", |(_, name)| name))
    }
}
