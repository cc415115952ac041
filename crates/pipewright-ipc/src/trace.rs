//! Events of `tracing` for connections and workers: feature `tracing`. Without it they cost nothing.
//!
//! | level | event | fields |
//! |---|---|---|
//! | debug | `connection ended` | `shared_memory`, `fallback`, and the fields of [`Direction`](crate::Direction) for each direction |
//! | info | `worker started` | `worker`, `pid` |
//! | info | `worker ended` | `worker`, `pid`, `jobs`, `status` |
//! | warn | `worker lost` | the same, `reason`, `stderr_tail` |
//! | warn | `worker not started` | `reason` |

#[cfg(feature = "tracing")]
use tracing::{debug, info, warn};

use crate::error::Error;
use crate::options::Stats;

/// The end of a worker.
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "read by tracing only"))]
pub(crate) struct WorkerEnded<'a> {
    pub(crate) worker: u64,
    pub(crate) pid: u32,
    pub(crate) jobs: u64,
    pub(crate) status: Option<pipewright::ExitStatus>,
    pub(crate) stderr_tail: &'a str,
    /// `None`: the pool retired it.
    pub(crate) reason: Option<&'a Error>,
}

#[cfg(feature = "tracing")]
pub(crate) fn connection_ended(stats: &Stats) {
    let Stats { sent, received, shared_memory, fallback } = stats;
    debug!(
        shared_memory,
        fallback,
        sent.messages,
        sent.bytes,
        sent.inline_frames,
        sent.inline_bytes,
        sent.shared_frames,
        sent.shared_bytes,
        sent.spilled_frames,
        sent.progressive_messages,
        sent.ring_high_water_bytes,
        sent.wakes,
        sent.blocked_us = micros(sent.blocked),
        sent.spun_us = micros(sent.spun),
        sent.system_calls,
        received.messages,
        received.bytes,
        received.inline_frames,
        received.inline_bytes,
        received.shared_frames,
        received.shared_bytes,
        received.progressive_messages,
        received.blocked_us = micros(received.blocked),
        received.spun_us = micros(received.spun),
        received.system_calls,
        "connection ended"
    );
}

#[cfg(feature = "tracing")]
fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(feature = "tracing")]
pub(crate) fn worker_started(worker: u64, pid: u32) {
    info!(worker, pid, "worker started");
}

#[cfg(feature = "tracing")]
pub(crate) fn worker_ended(end: &WorkerEnded<'_>) {
    let WorkerEnded { worker, pid, jobs, stderr_tail, .. } = *end;
    let status = end.status.map(tracing::field::display);
    match end.reason {
        None => info!(worker, pid, jobs, status, "worker ended"),
        Some(reason) => warn!(worker, pid, jobs, status, %reason, stderr_tail, "worker lost"),
    }
}

#[cfg(feature = "tracing")]
pub(crate) fn worker_not_started(reason: &Error) {
    warn!(%reason, "worker not started");
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn connection_ended(_: &Stats) {}
#[cfg(not(feature = "tracing"))]
pub(crate) fn worker_started(_: u64, _: u32) {}
#[cfg(not(feature = "tracing"))]
pub(crate) fn worker_ended(_: &WorkerEnded<'_>) {}
#[cfg(not(feature = "tracing"))]
pub(crate) fn worker_not_started(_: &Error) {}
