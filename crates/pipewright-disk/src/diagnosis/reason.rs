//! The reasons why requests were not asynchronous. Derived from evidence alone, without system calls.

mod messages;

use std::time::Duration;

use pipewright_os::disk::file::{Filesystem, NowaitReads, NowaitWrites};

use super::evidence::Evidence;
use super::plan::{Test, Work};
use super::verdict::Verdict;
use crate::{BackendKind, Class, UnavailableReason};

/// A reason why requests were not asynchronous, or only seemed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The data were in memory.
    CacheHit,
    /// A part of the data was in memory, but less than half of the requests met it.
    PartlyCached,
    /// Reads hit a hole, which has no data.
    NothingThere,
    /// The data were not in memory, and only a few kernel threads fetch them.
    CacheMiss,
    /// The filesystem stores the file compressed.
    Compression,
    /// The filesystem stores the file encrypted.
    Encryption,
    /// Writes extend the file.
    Extending,
    /// Writes fill a hole.
    Hole,
    /// Writes go beyond the last written byte, so that zeros are written first.
    NeverWritten,
    /// The filesystem has no asynchronous writes through the cache.
    BufferedWrite,
    /// Direct reads have to wait until data written through the cache are on the disk.
    Unwritten,
    /// Direct writes have to evict cached pages first.
    InCache,
    /// A write spans more than one extent of the file.
    Split,
    /// The filesystem can reserve metadata space for only a few writes at once.
    WriteRoom,
    /// Direct reads of more than one page are passed to threads.
    ManyPages,
    /// The first write after each clock tick updates the file's timestamps, which may block.
    FileTimes,
    /// A write that blocks holds the file's lock, and others wait for it.
    WriteLock,
    /// The filesystem copies on write, or keeps checksums.
    CopyOnWrite,
    /// The filesystem does not support requests that must not wait.
    NoNowait,
    /// The filesystem runs in user space.
    Fuse,
    /// The file can be polled, and is therefore assumed never to block.
    Pollable,
    /// The disk's queue was full.
    DeviceQueueFull,
    /// The requests were misaligned.
    Misaligned,
    /// This kind of operation is never asynchronous.
    OperationKind,
    /// io_uring is unavailable, for this reason.
    RingRefused(UnavailableReason),
    /// No known reason applies.
    Unexplained,
}

/// A remedy for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// No remedy is needed.
    Nothing,
    /// Bypass the cache.
    Direct,
    /// Drop the file from the cache, and use direct I/O only.
    ForgetCache,
    /// Sync the file first.
    Sync,
    /// Preallocate the space before writing.
    Preallocate,
    /// Preallocate, and bypass the cache.
    PreallocateDirect,
    /// Write all of the file once, or mark its space as valid, which [exposes old disk
    /// contents](crate::FileOptions::expose_old_disk_contents).
    WriteOnce,
    /// Store the file uncompressed, or read through the cache.
    Decompress,
    /// Let the disk encrypt (`inlinecrypt`), or use another folder.
    InlineEncryption,
    /// Run `chattr +C` while the file is empty.
    NoCopyOnWrite,
    /// Use a volume, or a plain thread pool.
    AnotherFilesystem,
    /// Use Linux AIO, or a volume instead of the container's own layers.
    Aio,
    /// Use Linux AIO, which updates the timestamps inside the call, or mount with `lazytime` (Linux 7.0 and
    /// later).
    AioOrLazytime,
    /// Use Linux AIO, or store the file in larger extents.
    AioOrDefragment,
    /// Use Linux AIO, or read one page at a time.
    AioOrOnePage,
    /// Mount with `lazytime` (Linux 7.0 and later), or accept that a thread does some of the writes.
    Lazytime,
    /// Use a plain thread pool: io_uring makes the caller wait.
    Threads,
    /// Submit fewer requests at once.
    LowerDepth,
    /// Keep fewer writes in flight.
    FewerWrites,
    /// Align the requests.
    Align,
    /// Accept that a thread performs the requests.
    ExpectWorker,
    /// Allow io_uring in the container's profile or on the system.
    AllowRing,
}

/// A reason, its evidence and its remedy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The reason.
    pub reason: Reason,
    /// The evidence, as text.
    pub evidence: String,
    /// The remedy.
    pub remedy: Remedy,
    /// The test in the same report that shows the remedy's effect, if there is one.
    pub tried: Option<Test>,
    /// The effect of the remedy, in that test or in a repetition of the same test. `None` if it was not tried.
    pub effect: Option<Effect>,
}

/// The effect of a remedy.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Effect {
    /// The time until all requests were done.
    pub completed: Duration,
    /// The share of that time in which the caller was free for other work, from 0 to 1.
    pub free_share: f64,
    /// The verdict with the remedy.
    pub verdict: Verdict,
}

/// The percentage of asynchronous requests from which a test counts as asynchronous.
const MAX_PERCENT: usize = 95;

/// Returns the reasons why the requests of a test were not asynchronous, the most important first.
///
/// Returns nothing if they were asynchronous, or if the reason cannot be determined.
#[must_use]
pub fn reasons(evidence: &Evidence) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(unavailable) = evidence
        .unavailable_backends
        .iter()
        .find(|unavailable| unavailable.backend == BackendKind::Uring)
    {
        found.push(Reason::RingRefused(unavailable.reason));
    }
    if evidence.misaligned.is_some() {
        found.push(Reason::Misaligned);
    }
    // With these backends the engine's own threads or the caller do the work, as their names say.
    let is_kernels = match evidence.backend {
        BackendKind::Threads | BackendKind::Caller => false,
        BackendKind::Aio => evidence.test.direct,
        _ => true,
    };
    let verdict = Verdict::of(evidence);
    let is_judged = evidence.test.asynchronous && is_kernels && verdict != Verdict::Unknown;
    if is_judged && verdict != Verdict::Asynchronous {
        let before = found.len();
        file_reasons(evidence, &mut found);
        inline_reads(evidence, &mut found, before);
        if found.len() == before {
            found.push(Reason::Unexplained);
        }
    } else if is_judged && is_through_cache(evidence) {
        // The requests were asynchronous, but not direct as requested.
        found.push(Reason::Encryption);
    }
    found.into_iter().map(|reason| messages::finding(reason, evidence)).collect()
}

/// Finds the reasons in the file, its filesystem and its disk.
fn file_reasons(evidence: &Evidence, found: &mut Vec<Reason>) {
    let (facts, test, first) = (&evidence.facts, evidence.test, found.len());
    let has = |class| evidence.count(class) > 0;
    let is = |filesystem| facts.filesystem == Some(filesystem);
    let is_deferred = evidence.tick().is_some();
    let is_inline = has(Class::InlineCached) && evidence.is_mostly(&[Class::InlineCached], 50);
    if is_inline && !is_deferred {
        if is_through_cache(evidence) {
            found.push(Reason::Encryption);
        }
        return found.push(if is_hole(evidence) { Reason::NothingThere } else { Reason::CacheHit });
    }
    if test.work == Work::Sync {
        return found.push(Reason::OperationKind);
    }
    // Properties of a whole filesystem come first and exclude all other reasons.
    if is(Filesystem::Fuse) {
        return found.push(Reason::Fuse);
    }
    if facts.pollable == Some(true) {
        return found.push(Reason::Pollable);
    }
    if facts.nowait == Some(false) && has(Class::Worker) {
        return found.push(Reason::NoNowait);
    }
    if facts.compressed == Some(true) {
        found.push(Reason::Compression);
    }
    if facts.encrypted == Some(true) || is_through_cache(evidence) {
        found.push(Reason::Encryption);
    }
    if evidence.backend == BackendKind::Overlapped {
        return match test.work {
            Work::Extend => found.push(Reason::Extending),
            Work::Preallocated | Work::Hole => found.push(Reason::NeverWritten),
            _ => {}
        };
    }
    if evidence.backend == BackendKind::Aio {
        // Linux AIO has no threads: what it cannot defer is done inside the call.
        match test.work {
            Work::Extend => return found.push(Reason::Extending),
            Work::Hole => return found.push(Reason::Hole),
            _ => {}
        }
    } else if is_deferred {
        found.push(Reason::FileTimes);
        found.extend((evidence.split > Some(0)).then_some(Reason::Split));
    } else if has(Class::Worker) {
        worker_reasons(evidence, found, first);
    }
    let slept = evidence.count(Class::InlineBlocked);
    if slept * 100 > evidence.requests * (100 - MAX_PERCENT) && is_queue_full(evidence) {
        // If the clock decides, the number of requests done by threads varies between runs.
        let most = if is_deferred { evidence.requests / 2 } else { 0 };
        let explains_most = slept > evidence.count(Class::Worker).max(most);
        found.insert(if explains_most { first } else { found.len() }, Reason::DeviceQueueFull);
    }
}

/// Finds the reasons why kernel threads waited. Reasons found in the file start at index `first`.
fn worker_reasons(evidence: &Evidence, found: &mut Vec<Reason>, first: usize) {
    let (facts, test) = (&evidence.facts, evidence.test);
    match test.work {
        Work::Extend => found.push(Reason::Extending),
        Work::Hole => found.push(Reason::Hole),
        Work::Read if !test.direct => found.push(Reason::CacheMiss),
        Work::Read if evidence.unwritten_before > Some(0) => found.push(Reason::Unwritten),
        Work::Read if evidence.nowait_reads == Some(NowaitReads::OfOnePage) => {
            found.push(Reason::ManyPages);
        }
        _ => {}
    }
    let is_btrfs = facts.filesystem == Some(Filesystem::Btrfs);
    if test.work.is_write() && is_btrfs && facts.no_copy_on_write != Some(true) {
        found.push(Reason::CopyOnWrite);
    } else if test.work.is_write() && !test.direct {
        let is_taken = evidence.nowait_writes == Some(NowaitWrites::Taken);
        found.push(if is_taken { Reason::WriteLock } else { Reason::BufferedWrite });
    } else if matches!(test.work, Work::Overwrite | Work::Preallocated) && found.len() == first {
        let is_crowded = evidence.write_room.is_some_and(|room| room < evidence.requests);
        found.extend(is_crowded.then_some(Reason::WriteRoom));
        found.extend(evidence.must_evict_cache().then_some(Reason::InCache));
        split_reason(evidence, found, first);
    }
}

/// Adds the writes that span several extents: first if most of the writes by threads did, otherwise last.
fn split_reason(evidence: &Evidence, found: &mut Vec<Reason>, first: usize) {
    let Some(split @ 1..) = evidence.split else { return };
    if split * 2 > evidence.count(Class::Worker) {
        return found.insert(first, Reason::Split);
    }
    if found.len() == first {
        // The few don't explain the others.
        found.push(Reason::Unexplained);
    }
    found.push(Reason::Split);
}

/// Adds the reason why a part of the reads completed inside the call. Reasons found before start at index `first`.
fn inline_reads(evidence: &Evidence, found: &mut Vec<Reason>, first: usize) {
    let inline = evidence.count(Class::InlineCached);
    let is_part =
        inline * 100 > evidence.requests * (100 - MAX_PERCENT) && inline * 2 < evidence.requests;
    if evidence.test.work != Work::Read || !is_part {
        return;
    }
    let reason = if is_hole(evidence) { Reason::NothingThere } else { Reason::PartlyCached };
    let waited = [Class::Worker, Class::InlineBlocked, Class::PendingButDone];
    let others: usize = waited.iter().map(|class| evidence.count(*class)).sum();
    found.insert(if inline > others { first } else { found.len() }, reason);
}

/// Returns true if direct I/O was requested, and the system reports that it goes through the cache.
fn is_through_cache(evidence: &Evidence) -> bool {
    evidence.test.direct && evidence.bypasses_cache == Some(false)
}

/// Returns true if reads completed at once because of a hole and not because the data were in memory.
fn is_hole(evidence: &Evidence) -> bool {
    let has_hole = evidence.test.work == Work::Read && evidence.has_hole == Some(true);
    let share = if evidence.is_mostly(&[Class::InlineCached], 50) { 2 } else { 20 };
    let is_cached =
        evidence.cached_before.is_none_or(|bytes| bytes * share > evidence.facts.length);
    has_hole && (evidence.test.direct || !is_cached)
}

/// Returns true if direct requests can block in the call because the disk's queue is full.
fn is_queue_full(evidence: &Evidence) -> bool {
    evidence.facts.device_queue.is_some_and(|room| evidence.requests > room as usize)
}

#[cfg(test)]
mod tests;
