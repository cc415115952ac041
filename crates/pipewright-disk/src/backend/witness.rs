//! Sees what a call did to the calling thread.

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
}

impl Witness {
    /// Of the calling thread, which it then belongs to.
    pub(crate) fn new() -> Witness {
        Witness { disk: DiskCounter::open() }
    }

    /// Looks, before a call.
    pub(crate) fn look(&mut self) -> Before {
        let device_bytes = self.disk.as_ref().and_then(DiskCounter::bytes);
        // Last, so that the look itself is not counted.
        Before { sleeps: thread_usage::now().map(|usage| usage.sleeps), device_bytes }
    }

    fn slept_since(before: Before) -> Option<bool> {
        Some(thread_usage::now()?.sleeps != before.sleeps?)
    }

    /// The call has done it.
    pub(crate) fn inline_since(&mut self, before: Before) -> Seen {
        Witness::slept_since(before).map_or(Seen::Nothing, |slept| Seen::Inline { slept })
    }

    /// The call has handed it over.
    pub(crate) fn handed_over_since(&mut self, before: Before) -> Seen {
        let Some(slept) = Witness::slept_since(before) else { return Seen::Nothing };
        let now = self.disk.as_ref().and_then(DiskCounter::bytes);
        let device_bytes = now.zip(before.device_bytes).map(|(now, then)| now.saturating_sub(then));
        Seen::Kernel { slept, device_bytes }
    }

    /// The call has handed it to a queue without threads.
    pub(crate) fn queued_since(&mut self, before: Before) -> Seen {
        Witness::slept_since(before).map_or(Seen::Nothing, |slept| Seen::Queue { slept })
    }
}
