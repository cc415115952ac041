//! The evidence from a test, from which all reasons are derived.

use std::time::Duration;

use pipewright_os::disk::file::{Facts, NowaitReads, NowaitWrites};

use super::{Test, Work};
use crate::{BackendKind, Class, Misaligned, UnavailableBackend, Unjudged};

/// The facts about a test and its file. Unknown facts are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The test.
    pub test: Test,
    /// The number of requests.
    pub requests: usize,
    /// The number of requests per class, in the order of [`Class::ALL`].
    pub counts: [usize; Class::ALL.len()],
    /// The properties of the file.
    pub facts: Facts,
    /// True if direct I/O bypasses the cache, according to the system.
    pub bypasses_cache: Option<bool>,
    /// The bytes of the file in memory before the test.
    pub cached_before: Option<u64>,
    /// The bytes of the file in memory and not yet on the disk before the test.
    pub unwritten_before: Option<u64>,
    /// The bytes of the file in memory after the test.
    pub cached_after: Option<u64>,
    /// True if a part of the file was a hole before the test: it had no disk space, and there was nothing to read.
    pub has_hole: Option<bool>,
    /// The number of requests that spanned more than one extent. Only for direct writes in place.
    pub split: Option<usize>,
    /// The number of concurrent writes for which the filesystem can reserve metadata space, if it is limited
    /// (Btrfs).
    pub write_room: Option<usize>,
    /// The number of kernel threads that worked for the test.
    pub kernel_workers: Option<usize>,
    /// The maximum number of kernel threads.
    pub worker_limit: usize,
    /// The result of trial reads of the same length that must not wait. Only for direct reads, if a thread
    /// performed some of them.
    pub nowait_reads: Option<NowaitReads>,
    /// The result of trial writes to the file that must not wait. Only for writes.
    pub nowait_writes: Option<NowaitWrites>,
    /// The time it took to submit all requests.
    pub submit_time: Duration,
    /// The backend.
    pub backend: BackendKind,
    /// The preferred backends that are unavailable, each with the reason.
    pub unavailable_backends: Vec<UnavailableBackend>,
    /// The reason why this machine allows no verdict, or only some.
    pub unjudged: Option<Unjudged>,
    /// The misalignment that made a request fail.
    pub misaligned: Option<Misaligned>,
}

impl Evidence {
    /// Returns the number of requests of that class.
    #[must_use]
    pub fn count(&self, class: Class) -> usize {
        Class::ALL.iter().zip(self.counts).find(|(other, _)| **other == class).map_or(0, |it| it.1)
    }

    /// Returns the number of requests whose class is known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Returns the tick of the file's clock, if the first write after each tick is deferred.
    ///
    /// The number of writes blocked behind it depends on the load of the processors and varies between runs.
    /// The existence of such writes does not.
    pub(super) fn tick(&self) -> Option<Duration> {
        let (test, ring) = (self.test, self.backend == BackendKind::Uring);
        // Writes that wait for space, for the cache or because they are split would wait in any case.
        let is_deferred = match test.work {
            Work::Overwrite | Work::Preallocated => !self.must_evict_cache() && !self.is_split(),
            Work::Extend | Work::Hole => !test.direct,
            Work::Read | Work::Sync => false,
        };
        match self.nowait_writes {
            Some(NowaitWrites::WaitForTimes { tick }) if ring && is_deferred => Some(tick),
            _ => None,
        }
    }

    /// Returns true if direct writes have to evict cached pages first.
    pub(super) fn must_evict_cache(&self) -> bool {
        self.test.direct && self.cached_before > Some(0)
    }

    /// Returns true if most of the requests spanned several extents.
    pub(super) fn is_split(&self) -> bool {
        self.split.is_some_and(|split| split * 2 > self.requests)
    }

    /// Returns true if at least that percentage of the requests was of these classes.
    pub(super) fn is_mostly(&self, classes: &[Class], percent: usize) -> bool {
        let count: usize = classes.iter().map(|class| self.count(*class)).sum();
        self.requests > 0 && count * 100 >= self.requests * percent
    }
}
