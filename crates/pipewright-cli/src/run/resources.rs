//! The parts of a report about limits, memory and the usage of a whole tree.

use pipewright::{HeldLimits, MemoryLimit, OutOfMemory, TreeUsage};
use serde::Serialize;

/// The limits in force.
#[derive(Debug, Serialize)]
pub(super) struct LimitsReport {
    mechanism: Option<String>,
    memory_max_bytes: Option<u64>,
    memory_swap_max_bytes: Option<u64>,
    cpu_max: Option<f64>,
    pids_max: Option<u64>,
    oom_group: bool,
    sampled: Option<String>,
    missing: Vec<MissingReport>,
}

/// A limit that was asked for and is not in force.
#[derive(Debug, Serialize)]
struct MissingReport {
    limit: &'static str,
    reason: String,
    remedy: Option<String>,
}

impl LimitsReport {
    /// Returns the report; `None` if no limit was asked for.
    pub(super) fn of(held: &HeldLimits) -> Option<LimitsReport> {
        let HeldLimits { limits, mechanism, sampled, missing, .. } = held;
        if mechanism.is_none() && missing.is_empty() {
            return None;
        }
        let missing = missing.iter().map(|missing| MissingReport {
            limit: missing.limit.name(),
            reason: missing.reason.clone(),
            remedy: missing.remedy.clone(),
        });
        Some(LimitsReport {
            mechanism: mechanism.map(|it| it.to_string()),
            memory_max_bytes: limits.memory_max_bytes,
            memory_swap_max_bytes: limits.memory_swap_max_bytes,
            cpu_max: limits.cpu_time_per_second.map(|time| time.as_secs_f64()),
            pids_max: limits.pids_max,
            oom_group: limits.oom_group,
            sampled: sampled.as_ref().map(|sampled| sampled.reason.clone()),
            missing: missing.collect(),
        })
    }
}

/// The processes that were killed for lack of memory.
#[derive(Debug, Serialize)]
pub(super) struct OutOfMemoryReport {
    /// `command`, `ancestor`, `descendant` or `machine`.
    limit: &'static str,
    limit_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    victim: Option<String>,
    victim_pid: Option<u32>,
    killed: u32,
}

impl OutOfMemoryReport {
    pub(super) fn of(oom: OutOfMemory) -> OutOfMemoryReport {
        let (limit, limit_bytes) = match oom.limit {
            MemoryLimit::OfCommand(bytes) => ("command", Some(bytes)),
            MemoryLimit::OfAncestor(bytes) => ("ancestor", bytes),
            MemoryLimit::OfDescendant => ("descendant", None),
            _ => ("machine", None),
        };
        OutOfMemoryReport {
            limit,
            limit_bytes,
            peak_bytes: oom.peak_bytes,
            victim: oom.victim.map(|victim| victim.name().to_owned()),
            victim_pid: oom.victim.map(|victim| victim.pid()),
            killed: oom.killed,
        }
    }
}

/// The usage of a whole tree.
#[derive(Debug, Serialize)]
pub(super) struct TreeReport {
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_memory_bytes: Option<u64>,
    peak_pids: Option<u64>,
    memory_stall_seconds: Option<f64>,
    cpu_stall_seconds: Option<f64>,
    io_stall_seconds: Option<f64>,
}

impl TreeReport {
    pub(super) fn of(usage: &TreeUsage) -> TreeReport {
        let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
        TreeReport {
            user_seconds: seconds(usage.user),
            system_seconds: seconds(usage.system),
            peak_memory_bytes: usage.peak_memory_bytes,
            peak_pids: usage.peak_pids,
            memory_stall_seconds: seconds(usage.memory_stall),
            cpu_stall_seconds: seconds(usage.cpu_stall),
            io_stall_seconds: seconds(usage.io_stall),
        }
    }
}
