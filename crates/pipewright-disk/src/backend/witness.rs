//! Sees what a call did to the calling thread.

use std::time::{Duration, Instant};

use pipewright_os::disk::thread_usage::{self, ThreadUsage};

use crate::class::Seen;

/// Looks at the calling thread before and after a call.
#[derive(Debug)]
pub(crate) struct Witness {
    counts_disk_bytes: bool,
    /// Somebody wants to know how long the calls took.
    times: bool,
}

/// What there was before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    usage: Option<ThreadUsage>,
    began: Option<Instant>,
}

impl Before {
    /// How long the call took; nothing, where nobody wants to know.
    pub(crate) fn elapsed(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl Witness {
    pub(crate) fn new(times: bool) -> Witness {
        Witness { counts_disk_bytes: thread_usage::counts_disk_bytes(), times }
    }

    /// Looks, before a call.
    pub(crate) fn look(&self) -> Before {
        self.again(Before { usage: thread_usage::now(), began: None })
    }

    /// The same look, for a call that begins now.
    pub(crate) fn again(&self, before: Before) -> Before {
        // Last, so that the look itself is not counted.
        Before { began: self.times.then(Instant::now), ..before }
    }

    /// The call has done it.
    pub(crate) fn inline_since(&self, before: Before) -> Seen {
        let took = before.elapsed();
        match before.usage.zip(thread_usage::now()) {
            Some((then, now)) => {
                Seen::Inline { slept: now.sleeps != then.sleeps, took, device_bytes: None }
            }
            None => Seen::Nothing,
        }
    }

    /// The call has handed it over. Also what there is before the next one.
    pub(crate) fn handed_over_since(&self, before: Before) -> (Seen, Before) {
        let took = before.elapsed();
        let now = thread_usage::now();
        let seen = match before.usage.zip(now) {
            Some((then, now)) => {
                let bytes = now.disk_bytes.saturating_sub(then.disk_bytes);
                let device_bytes = self.counts_disk_bytes.then_some(bytes);
                Seen::Kernel { slept: now.sleeps != then.sleeps, took, device_bytes }
            }
            None => Seen::Nothing,
        };
        (seen, Before { usage: now, began: None })
    }

    /// The call has handed it to a queue without threads.
    pub(crate) fn queued_since(&self, before: Before) -> Seen {
        match self.inline_since(before) {
            Seen::Inline { slept, took, .. } => Seen::Queue { slept, took },
            other => other,
        }
    }
}
