//! A test, the evidence from it, and the verdict: were its requests asynchronous? All reasons are derived from the
//! evidence.

use std::fmt;
use std::time::Duration;

use pipewright_os::disk::file::{Facts, NowaitReads, NowaitWrites};

use crate::{BackendKind, Class, Misaligned, UnavailableBackend, Unjudged};

/// One test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Test {
    /// True if all requests are submitted at once; false if plain calls perform one after the other.
    pub asynchronous: bool,
    /// True if the requests bypass the cache.
    pub direct: bool,
    /// The kind of requests.
    pub work: Work,
}

/// The kind of requests of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Reads.
    Read,
    /// Writes over existing data.
    Overwrite,
    /// Writes past the end of the file.
    Extend,
    /// Writes into preallocated space.
    Preallocated,
    /// Writes into a hole of the file.
    Hole,
    /// Syncs.
    Sync,
}

impl Work {
    /// Returns a stable, machine-readable name such as `read` or `extend`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Read => "read",
            Work::Overwrite => "overwrite",
            Work::Extend => "extend",
            Work::Preallocated => "preallocated",
            Work::Hole => "hole",
            Work::Sync => "sync",
        }
    }

    /// Returns true if the requests write.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Work::Read
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.asynchronous { "asynchronous" } else { "synchronous" };
        let cache = if self.direct { "direct" } else { "buffered" };
        let work = match self.work {
            Work::Read => "reads",
            Work::Overwrite => "overwrites",
            Work::Extend => "extending writes",
            Work::Preallocated => "writes into preallocated space",
            Work::Hole => "writes into a hole",
            Work::Sync => return write!(f, "{way} syncs"),
        };
        write!(f, "{way}, {cache} {work}")
    }
}

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
        let (test, ring) = (self.test, self.backend == BackendKind::IoUring);
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
    fn is_split(&self) -> bool {
        self.split.is_some_and(|split| split * 2 > self.requests)
    }

    /// Returns true if at least that percentage of the requests was of these classes.
    pub(super) fn is_mostly(&self, classes: &[Class], percent: usize) -> bool {
        let count: usize = classes.iter().map(|class| self.count(*class)).sum();
        self.requests > 0 && count * 100 >= self.requests * percent
    }
}

/// The verdict on the requests of a test: were they asynchronous?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The disk worked while the caller went on.
    Asynchronous,
    /// Some requests were asynchronous, some were not.
    Partly,
    /// Threads waited for the disk.
    Workers,
    /// The data were in memory, and the calls performed the requests.
    Cached,
    /// The caller waited, although it asked for asynchronous I/O.
    Blocked,
    /// The caller waited, as requested.
    Synchronous,
    /// No verdict is possible here.
    Unknown,
}

impl Verdict {
    /// Returns the verdict on a test.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Verdict {
        const MIN_PERCENT: usize = 95;
        const DEFERRED: [Class; 3] = [Class::AsyncDevice, Class::InlineCached, Class::Worker];
        let asynchronous = [Class::AsyncDevice, Class::AsyncPageWait];
        if !evidence.test.asynchronous {
            Verdict::Synchronous
        } else if evidence.known() == 0 || is_imitated(evidence) {
            Verdict::Unknown
        } else if evidence.tick().is_some() && evidence.is_mostly(&DEFERRED, 50) {
            // The exact share varies between runs.
            Verdict::Partly
        } else if evidence.is_mostly(&asynchronous, MIN_PERCENT) {
            Verdict::Asynchronous
        } else if evidence.is_mostly(&[Class::Worker], MIN_PERCENT) {
            Verdict::Workers
        } else if evidence.is_mostly(&[Class::InlineCached], MIN_PERCENT) {
            Verdict::Cached
        } else if evidence.is_mostly(&[Class::InlineBlocked, Class::PendingButDone], MIN_PERCENT) {
            Verdict::Blocked
        } else {
            Verdict::Partly
        }
    }

    /// Returns a stable, machine-readable name such as `asynchronous` or `workers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Asynchronous => "asynchronous",
            Verdict::Partly => "partly",
            Verdict::Workers => "workers",
            Verdict::Cached => "cached",
            Verdict::Blocked => "blocked",
            Verdict::Synchronous => "synchronous",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Returns true if the results come from an emulator's calls. Engine threads are not emulated.
fn is_imitated(evidence: &Evidence) -> bool {
    evidence.unjudged == Some(Unjudged::Imitation) && evidence.backend == BackendKind::Overlapped
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Asynchronous => "truly asynchronous",
            Verdict::Partly => "partly asynchronous",
            Verdict::Workers => "not asynchronous: threads waited",
            Verdict::Cached => "synchronous: the data were in memory",
            Verdict::Blocked => "not asynchronous: the caller waited",
            Verdict::Synchronous => "synchronous, as requested",
            Verdict::Unknown => "cannot be determined here",
        })
    }
}
