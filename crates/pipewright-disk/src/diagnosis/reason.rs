//! Why requests were not asynchronous: from evidence alone, without a system call.

mod messages;

use std::time::Duration;

use pipewright_os::disk::file::{Filesystem, NowaitReads, NowaitWrites};

use super::evidence::Evidence;
use super::plan::{Test, Work};
use super::verdict::Verdict;
use crate::{BackendKind, Class, UnavailableReason};

/// Why requests were not asynchronous, or were not what they seem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The data were in memory.
    CacheHit,
    /// There are none: the file has a hole there.
    NothingThere,
    /// They were not, and few threads of the kernel fetch them.
    CacheMiss,
    /// The filesystem stores it compressed.
    Compression,
    /// The filesystem stores it encrypted.
    Encryption,
    /// Writes lengthen the file.
    Extending,
    /// Writes fill a hole.
    Hole,
    /// Writes go where nothing was ever written, and zeros are written first.
    NeverWritten,
    /// The filesystem has no asynchronous writes through the cache.
    BufferedWrite,
    /// Reads past the cache have to wait until the disk has what was written through it.
    Unwritten,
    /// Writes past the cache have to throw out first what is in it.
    InCache,
    /// A write meets more than one piece (extent) of the file.
    Split,
    /// The filesystem has room for the accounts of few writes at once.
    WriteRoom,
    /// Reads past the cache that ask for more than a page go to threads there.
    ManyPages,
    /// The first write after each tick of the clock changes the times of the file, and that may wait.
    FileTimes,
    /// A write that has to wait has the file locked, and others wait behind it.
    WriteLock,
    /// The filesystem copies on write, or keeps checksums.
    CopyOnWrite,
    /// The filesystem cannot be asked not to wait.
    NoNowait,
    /// The filesystem is a program.
    Fuse,
    /// The file can be polled, and so is taken for one that never waits.
    Pollable,
    /// The queue of the disk was full.
    DeviceQueueFull,
    /// Requests were not aligned.
    Misaligned,
    /// Operations of that kind never are.
    OperationKind,
    /// io_uring is refused.
    RingRefused(UnavailableReason),
    /// Nothing was found that explains it.
    Unexplained,
}

/// What can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Nothing has to be done.
    Nothing,
    /// Bypass the cache.
    Direct,
    /// Have the cache forget it, and is_existing_file it out of it.
    ForgetCache,
    /// Sync it first.
    Sync,
    /// Give the file its room before it is written to.
    Preallocate,
    /// As `Preallocate`, and bypass the cache.
    PreallocateDirect,
    /// Write all of it once, or have it taken for written, with what that exposes.
    WriteOnce,
    /// Store it without compression, or read through the cache.
    Decompress,
    /// Let the disk encrypt (`inlinecrypt`), or use another folder.
    InlineEncryption,
    /// `chattr +C`, while the file is empty.
    NoCopyOnWrite,
    /// Use a volume, or a plain pool of threads.
    AnotherFilesystem,
    /// Have Linux AIO do it, or use a volume instead of the container's own layers.
    Aio,
    /// As `Aio`, which changes the times inside the call; or mount with `lazytime`, from Linux 7.0 on.
    AioOrLazytime,
    /// As `Aio`; or have the file in larger pieces.
    AioOrDefragment,
    /// As `Aio`; or ask for one page at once.
    AioOrOnePage,
    /// Mount with `lazytime`, from Linux 7.0 on; or have it done by a thread, knowingly.
    Lazytime,
    /// Use a plain pool of threads: the ring keeps the caller waiting.
    Threads,
    /// Ask for less at once.
    LowerDepth,
    /// Have fewer writes under way.
    FewerWrites,
    /// Align the requests.
    Align,
    /// Have it done by a thread, knowingly.
    ExpectWorker,
    /// Let the container or the administrator allow it.
    AllowRing,
}

/// A reason, what it is drawn from, and what can be done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The reason.
    pub reason: Reason,
    /// What was seen that says so.
    pub evidence: String,
    /// What can be done.
    pub remedy: Remedy,
    /// The test of the same report that shows what the remedy does, where there is one.
    pub tried: Option<Test>,
    /// What the remedy did, in that test or in the same one made once more with it. `None`: it was not tried.
    pub effect: Option<Effect>,
}

/// What a remedy did.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Effect {
    /// How long it took until all requests were done.
    pub completed: Duration,
    /// The share of that time that the caller had for itself, from 0 to 1.
    pub free_share: f64,
    /// Whether it was asynchronous.
    pub verdict: Verdict,
}

/// A test counts as asynchronous where so many of its requests were, in percent.
const MAX_PERCENT: usize = 95;

/// Why the requests of a test were not asynchronous. Nothing: they were, or it cannot be known.
///
/// The first explains the most.
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
    // Threads of our own are a reason in themselves, which the backend's name tells.
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
        if found.len() == before {
            found.push(Reason::Unexplained);
        }
    } else if is_judged && is_through_cache(evidence) {
        // Asynchronous, and yet not what was asked for.
        found.push(Reason::Encryption);
    }
    found.into_iter().map(|reason| messages::finding(reason, evidence)).collect()
}

/// What the file, its filesystem and its disk have to do with it.
fn file_reasons(evidence: &Evidence, found: &mut Vec<Reason>) {
    let (facts, test, first) = (&evidence.facts, evidence.test, found.len());
    let has = |class| evidence.count(class) > 0;
    let is = |filesystem| facts.filesystem == Some(filesystem);
    let is_put_off = evidence.tick().is_some();
    let is_inline = has(Class::InlineCached) && evidence.is_mostly(&[Class::InlineCached], 50);
    if is_inline && !is_put_off {
        if is_through_cache(evidence) {
            found.push(Reason::Encryption);
        }
        return found.push(if is_hole(evidence) { Reason::NothingThere } else { Reason::CacheHit });
    }
    if test.work == Work::Sync {
        return found.push(Reason::OperationKind);
    }
    // What decides for all of a filesystem comes first: nothing else is asked there.
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
        // It has no threads, and does at once what it cannot do later.
        match test.work {
            Work::Extend => return found.push(Reason::Extending),
            Work::Hole => return found.push(Reason::Hole),
            _ => {}
        }
    } else if is_put_off {
        found.push(Reason::FileTimes);
    } else if has(Class::Worker) {
        worker_reasons(evidence, found, first);
    }
    let slept = evidence.count(Class::InlineBlocked);
    if slept * 100 > evidence.requests * (100 - MAX_PERCENT) && is_queue_full(evidence) {
        // How many a thread did is luck, where it is the clock that decides.
        let most = if is_put_off { evidence.requests / 2 } else { 0 };
        let explains_most = slept > evidence.count(Class::Worker).max(most);
        found.insert(if explains_most { first } else { found.len() }, Reason::DeviceQueueFull);
    }
}

/// Why threads of the kernel waited; what the file has to do with it begins at `first`.
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
        // Few of them explain something only where nothing else does.
        if evidence.is_split() || (!is_crowded && evidence.split > Some(0)) {
            found.insert(first, Reason::Split);
        }
        found.extend(evidence.has_to_leave_cache().then_some(Reason::InCache));
    }
}

/// Direct I/O was asked for, and the system says that there is none.
fn is_through_cache(evidence: &Evidence) -> bool {
    evidence.test.direct && evidence.bypasses_cache == Some(false)
}

/// Reads were done at once, and not because it was in memory.
fn is_hole(evidence: &Evidence) -> bool {
    let has_hole = evidence.test.work == Work::Read && evidence.has_hole == Some(true);
    let is_cached = evidence.cached_before.is_none_or(|bytes| bytes * 2 > evidence.facts.length);
    has_hole && (evidence.test.direct || !is_cached)
}

/// Direct requests wait for room in the queue of the disk, inside the call.
fn is_queue_full(evidence: &Evidence) -> bool {
    evidence.facts.device_queue.is_some_and(|room| evidence.requests > room as usize)
}

#[cfg(test)]
mod tests;
