//! Sees what a call did to the calling thread.

use std::time::{Duration, Instant};

use pipewright_os::disk::thread_usage::{self, ThreadUsage};

use crate::class::Observation;

/// Looks at the calling thread before and after a call.
#[derive(Debug)]
pub(crate) struct CallMonitor {
    counts_disk_bytes: bool,
    /// Somebody wants to know how long the calls took.
    times: bool,
}

/// What there was before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    usage: Option<ThreadUsage>,
    began: Option<Instant>,
}

impl Snapshot {
    /// How long the call took; nothing, where nobody wants to know.
    pub(crate) fn elapsed(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl CallMonitor {
    pub(crate) fn new(times: bool) -> CallMonitor {
        CallMonitor { counts_disk_bytes: thread_usage::counts_disk_bytes(), times }
    }

    /// Looks, before a call.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.restart(Snapshot { usage: thread_usage::now(), began: None })
    }

    /// The same look, for a call that begins now.
    pub(crate) fn restart(&self, before: Snapshot) -> Snapshot {
        // Last, so that the look itself is not counted.
        Snapshot { began: self.times.then(Instant::now), ..before }
    }

    /// The call has done it.
    pub(crate) fn observe_inline(&self, before: Snapshot) -> Observation {
        let took = before.elapsed();
        match before.usage.zip(thread_usage::now()) {
            Some((then, now)) => {
                Observation::Inline { slept: now.sleeps != then.sleeps, took, device_bytes: None }
            }
            None => Observation::Nothing,
        }
    }

    /// The call has handed it over. Also what there is before the next one.
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

    /// The call has handed it to a queue without threads.
    pub(crate) fn observe_queued(&self, before: Snapshot) -> Observation {
        match self.observe_inline(before) {
            Observation::Inline { slept, took, .. } => Observation::Queue { slept, took },
            other => other,
        }
    }
}
