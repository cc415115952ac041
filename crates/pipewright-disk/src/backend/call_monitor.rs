//! Observes the effect of a call on the calling thread.

use std::time::{Duration, Instant};

use pipewright_os::disk::thread_usage::{self, ThreadUsage};

use crate::class::Observation;

/// Takes snapshots of the calling thread before and after a call.
#[derive(Debug)]
pub(crate) struct CallMonitor {
    counts_disk_bytes: bool,
    /// True if the durations of calls were requested.
    times: bool,
}

/// The state of the thread before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    usage: Option<ThreadUsage>,
    began: Option<Instant>,
}

impl Snapshot {
    /// Returns the duration of the call, or zero if it was not requested.
    pub(crate) fn elapsed(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl CallMonitor {
    pub(crate) fn new(times: bool) -> CallMonitor {
        CallMonitor { counts_disk_bytes: thread_usage::counts_disk_bytes(), times }
    }

    /// Takes a snapshot before a call.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.restart(Snapshot { usage: thread_usage::now(), began: None })
    }

    /// Reuses a snapshot for a call that starts now.
    pub(crate) fn restart(&self, before: Snapshot) -> Snapshot {
        // Taken last, so that the snapshot itself isn't counted.
        Snapshot { began: self.times.then(Instant::now), ..before }
    }

    /// Returns the observation of a call that performed the operation.
    pub(crate) fn observe_inline(&self, before: Snapshot) -> Observation {
        let took = before.elapsed();
        match before.usage.zip(thread_usage::now()) {
            Some((then, now)) => {
                Observation::Inline { slept: now.sleeps != then.sleeps, took, device_bytes: None }
            }
            None => Observation::Nothing,
        }
    }

    /// Returns the observation of a call that submitted the operation, and a snapshot for the next call.
    pub(crate) fn observe_submitted(&self, before: Snapshot) -> (Observation, Snapshot) {
        let took = before.elapsed();
        let now = thread_usage::now();
        let observation = match before.usage.zip(now) {
            Some((then, now)) => {
                let bytes = now.disk_bytes.saturating_sub(then.disk_bytes);
                let device_bytes = self.counts_disk_bytes.then_some(bytes);
                Observation::Kernel { slept: now.sleeps != then.sleeps, took, device_bytes }
            }
            None => Observation::Nothing,
        };
        (observation, Snapshot { usage: now, began: None })
    }

    /// Returns the observation of a call that submitted the operation to a queue without threads.
    pub(crate) fn observe_queued(&self, before: Snapshot) -> Observation {
        match self.observe_inline(before) {
            Observation::Inline { slept, took, .. } => Observation::Queue { slept, took },
            other => other,
        }
    }
}
