//! Sees what a call did to the calling thread.

use std::time::{Duration, Instant};

use pipewright_os::thread_usage::{self, DiskCounter};

use crate::class::Seen;

/// Looks at the calling thread before and after a call.
#[derive(Debug)]
pub(crate) struct Witness {
    disk: Option<DiskCounter>,
}

/// What there was before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    sleeps: Option<u64>,
    device_bytes: Option<u64>,
    began: Instant,
}

impl Before {
    /// How long the call took.
    pub(crate) fn elapsed(self) -> Duration {
        self.began.elapsed()
    }
}

impl Witness {
    /// Of the calling thread, which it then belongs to.
    pub(crate) fn new() -> Witness {
        Witness { disk: DiskCounter::open() }
    }

    /// Looks, before a call.
    pub(crate) fn look(&mut self) -> Before {
        let device_bytes = self.disk.as_ref().and_then(DiskCounter::bytes);
        let sleeps = thread_usage::now().map(|usage| usage.sleeps);
        // Last, so that the look itself is not counted.
        Before { sleeps, device_bytes, began: Instant::now() }
    }

    /// Whether the thread slept, and how long the call took.
    fn since(before: Before) -> Option<(bool, Duration)> {
        let took = before.elapsed();
        Some((thread_usage::now()?.sleeps != before.sleeps?, took))
    }

    /// The call has done it.
    pub(crate) fn inline_since(&mut self, before: Before) -> Seen {
        let seen = |(slept, took)| Seen::Inline { slept, took };
        Witness::since(before).map_or(Seen::Nothing, seen)
    }

    /// The call has handed it over.
    pub(crate) fn handed_over_since(&mut self, before: Before) -> Seen {
        let Some((slept, took)) = Witness::since(before) else { return Seen::Nothing };
        let now = self.disk.as_ref().and_then(DiskCounter::bytes);
        let device_bytes = now.zip(before.device_bytes).map(|(now, then)| now.saturating_sub(then));
        Seen::Kernel { slept, took, device_bytes }
    }

    /// The call has handed it to a queue without threads.
    pub(crate) fn queued_since(&mut self, before: Before) -> Seen {
        let seen = |(slept, took)| Seen::Queue { slept, took };
        Witness::since(before).map_or(Seen::Nothing, seen)
    }
}
