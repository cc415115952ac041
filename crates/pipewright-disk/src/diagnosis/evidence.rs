//! What a test has brought to light: all that its reasons are drawn from.

use std::time::Duration;

use pipewright_os::disk::file::{Facts, NowaitReads, NowaitWrites};

use super::{Test, Work};
use crate::{BackendKind, Class, Misaligned, UnavailableBackend, Unjudged};

/// What is known of a test and of its file. What is not known is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The test.
    pub test: Test,
    /// How many requests there were.
    pub requests: usize,
    /// How many of each class, in the order of [`Class::ALL`].
    pub counts: [usize; Class::ALL.len()],
    /// What the system knows of the file.
    pub facts: Facts,
    /// Whether direct I/O bypasses the cache, as far as the system tells.
    pub bypasses_cache: Option<bool>,
    /// Bytes of it that were in memory before.
    pub cached_before: Option<u64>,
    /// Bytes of it that were in memory before, and not on the disk yet.
    pub unwritten_before: Option<u64>,
    /// Bytes of it that were in memory afterwards.
    pub cached_after: Option<u64>,
    /// Whether a part of it had no room on the disk before, and so nothing that could be read from there.
    pub has_hole: Option<bool>,
    /// How many of the requests met more than one piece (extent) of it; nothing but for writes in place, past the cache.
    pub split: Option<usize>,
    /// For how many writes at once the filesystem has room to is_existing_file account of, where that is little (Btrfs).
    pub write_room: Option<usize>,
    /// How many threads of the kernel were at work for it.
    pub kernel_workers: Option<usize>,
    /// How many there can be.
    pub worker_limit: usize,
    /// What becomes of reads of that length that must not wait; nothing but for reads past the cache of which a
    /// thread did some.
    pub nowait_reads: Option<NowaitReads>,
    /// What becomes of writes to such a file that must not wait; nothing for what is no write.
    pub nowait_writes: Option<NowaitWrites>,
    /// How long it took to ask for all of them.
    pub asked: Duration,
    /// What carried it out.
    pub backend: BackendKind,
    /// The better ways that are not to be had.
    pub unavailable_backends: Vec<UnavailableBackend>,
    /// Nothing can be judged on this machine, or not all.
    pub unjudged: Option<Unjudged>,
    /// A request was refused for that.
    pub misaligned: Option<Misaligned>,
}

impl Evidence {
    /// How many requests were of that class.
    #[must_use]
    pub fn count(&self, class: Class) -> usize {
        Class::ALL.iter().zip(self.counts).find(|(other, _)| **other == class).map_or(0, |it| it.1)
    }

    /// How many requests were of a class that could be told.
    #[must_use]
    pub fn known(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The tick of the clock, where the first write after each of them is put off.
    ///
    /// How many others wait behind it is decided by what else the processors have to do, and differs from run to
    /// run of the same test. That there are such writes does not.
    pub(super) fn tick(&self) -> Option<Duration> {
        let (test, ring) = (self.test, self.backend == BackendKind::Uring);
        // What waits for room, for the cache to let go, or as it is split, waits in any case.
        let is_put_off = match test.work {
            Work::Overwrite | Work::Preallocated => !self.has_to_leave_cache() && !self.is_split(),
            Work::Extend | Work::Hole => !test.direct,
            Work::Read | Work::Sync => false,
        };
        match self.nowait_writes {
            Some(NowaitWrites::WaitForTimes { tick }) if ring && is_put_off => Some(tick),
            _ => None,
        }
    }

    /// Writes past the cache throw out first what is in it.
    pub(super) fn has_to_leave_cache(&self) -> bool {
        self.test.direct && self.cached_before > Some(0)
    }

    /// More of the requests than are overlooked met more than one piece of the file.
    pub(super) fn is_split(&self) -> bool {
        self.split.is_some_and(|split| split * 20 > self.requests)
    }

    /// Whether at least that share of the requests, in percent, was of these classes.
    pub(super) fn is_mostly(&self, classes: &[Class], percent: usize) -> bool {
        let count: usize = classes.iter().map(|class| self.count(*class)).sum();
        self.requests > 0 && count * 100 >= self.requests * percent
    }
}
