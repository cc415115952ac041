//! The reasons why requests were not asynchronous, with remedies and texts. Derived from evidence alone, without system
//! calls.

use std::fmt;
use std::time::Duration;

use pipewright_os::disk::file::{Filesystem, NowaitReads, NowaitWrites};

use super::evidence::{Evidence, Test, Verdict, Work};
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
        .find(|unavailable| unavailable.backend == BackendKind::IoUring)
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
    found.into_iter().map(|reason| finding(reason, evidence)).collect()
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

fn finding(reason: Reason, evidence: &Evidence) -> Finding {
    let facts = &evidence.facts;
    let filesystem = facts.filesystem.map_or("the filesystem".to_owned(), |kind| kind.name());
    let is_inside = matches!(evidence.backend, BackendKind::Overlapped | BackendKind::Aio);
    let workers = if is_inside {
        let waited = evidence.count(Class::InlineBlocked) + evidence.count(Class::PendingButDone);
        format!("{waited} of {} inside the call", evidence.requests)
    } else {
        format!("{} of {} by kernel threads", evidence.count(Class::Worker), evidence.requests)
    };
    let blocks = evidence.requests;
    let (text, remedy) = match reason {
        Reason::CacheHit | Reason::PartlyCached => {
            let cached = evidence.cached_before.map_or(String::new(), |bytes| {
                format!(", {} KiB of the file in memory before", bytes.div_ceil(1024))
            });
            let inline = evidence.count(Class::InlineCached);
            (
                format!("{inline} of {blocks} completed inside the call without sleeping{cached}"),
                if reason == Reason::CacheHit || evidence.test.direct {
                    Remedy::Nothing
                } else {
                    Remedy::Direct
                },
            )
        }
        Reason::NothingThere => {
            let inline = evidence.count(Class::InlineCached);
            let text =
                format!("{inline} of {blocks} completed inside the call, and the file has a hole");
            (text, Remedy::Nothing)
        }
        Reason::CacheMiss => {
            let busy = match evidence.kernel_workers {
                Some(count) => {
                    format!("{workers}, {count} at once (limit {})", evidence.worker_limit)
                }
                None => workers,
            };
            (busy, Remedy::Direct)
        }
        Reason::Compression => {
            ("the filesystem stores the file compressed".to_owned(), Remedy::Decompress)
        }
        Reason::Encryption => {
            let grown = match (evidence.cached_before, evidence.cached_after) {
                (Some(before), Some(after)) if evidence.test.direct && after > before => {
                    format!(
                        "; {} KiB went through the cache anyway",
                        (after - before).div_ceil(1024)
                    )
                }
                _ => String::new(),
            };
            let evidence_text = if facts.encrypted == Some(true) {
                "the filesystem stores the file encrypted"
            } else {
                "the filesystem reports that it has no direct I/O"
            };
            (format!("{evidence_text}{grown}"), Remedy::InlineEncryption)
        }
        Reason::Extending | Reason::Hole => {
            let remedy = match (evidence.backend, evidence.test.direct) {
                (BackendKind::Overlapped, _) => Remedy::WriteOnce,
                (_, true) => Remedy::Preallocate,
                (_, false) => Remedy::PreallocateDirect,
            };
            (format!("{workers}: each write allocates disk space"), remedy)
        }
        Reason::NeverWritten => {
            (format!("{workers}: the space before each write is zeroed first"), Remedy::WriteOnce)
        }
        Reason::BufferedWrite | Reason::WriteLock => {
            let remedy = match evidence.test.work {
                Work::Overwrite | Work::Preallocated => Remedy::Direct,
                _ => Remedy::PreallocateDirect,
            };
            (format!("{workers}, one at a time per file: {filesystem}"), remedy)
        }
        Reason::Unwritten => {
            let unwritten = evidence.unwritten_before.unwrap_or_default().div_ceil(1024);
            (
                format!("{workers}; {unwritten} KiB of the file were not on the disk before"),
                Remedy::Sync,
            )
        }
        Reason::InCache => {
            let cached = evidence.cached_before.unwrap_or_default().div_ceil(1024);
            (
                format!("{workers}; {cached} KiB of the file were in memory before"),
                Remedy::ForgetCache,
            )
        }
        Reason::Split => {
            let split = evidence.split.unwrap_or_default();
            let verb = if split == 1 { "spans" } else { "span" };
            let text = format!("{workers}; {split} of the writes {verb} more than one extent");
            (text, Remedy::AioOrDefragment)
        }
        Reason::WriteRoom => {
            let room = evidence.write_room.unwrap_or_default();
            let text =
                format!("{workers}; {filesystem} has metadata space for about {room} at once");
            (text, Remedy::FewerWrites)
        }
        Reason::ManyPages => (
            format!(
                "{workers}: {filesystem} refuses them with RWF_NOWAIT, but accepts reads of one page"
            ),
            Remedy::AioOrOnePage,
        ),
        Reason::FileTimes => {
            let remedy =
                if evidence.test.direct { Remedy::AioOrLazytime } else { Remedy::Lazytime };
            (format!("{workers}; {}", ticks(evidence)), remedy)
        }
        Reason::CopyOnWrite => {
            (format!("{workers}: {filesystem} without chattr +C"), Remedy::NoCopyOnWrite)
        }
        Reason::NoNowait => {
            let is_layered = facts.filesystem == Some(Filesystem::Overlay);
            let remedy = match evidence.test {
                // Linux AIO asks the layer below directly, without a kernel thread.
                Test { direct: true, work, .. } if is_layered && work != Work::Extend => {
                    Remedy::Aio
                }
                _ => Remedy::AnotherFilesystem,
            };
            (format!("{workers}: {filesystem} does not support RWF_NOWAIT"), remedy)
        }
        Reason::Fuse | Reason::Pollable => {
            let slept = evidence.count(Class::InlineBlocked);
            (format!("{slept} of {blocks} blocked the caller: {filesystem}"), Remedy::Threads)
        }
        Reason::DeviceQueueFull => {
            let room = facts.device_queue.unwrap_or_default();
            let slept = evidence.count(Class::InlineBlocked);
            let text = format!("{slept} calls slept; {blocks} requests for a queue of {room}");
            (text, Remedy::LowerDepth)
        }
        Reason::Misaligned => {
            let text =
                evidence.misaligned.map_or(String::new(), |misaligned| misaligned.to_string());
            (text, Remedy::Align)
        }
        Reason::OperationKind => (workers, Remedy::ExpectWorker),
        Reason::RingRefused(reason) => (reason.to_string(), Remedy::AllowRing),
        Reason::Unexplained => (workers, Remedy::ExpectWorker),
    };
    let tried = tried(remedy, evidence.test);
    Finding { reason, evidence: text, remedy, tried, effect: None }
}

/// Returns the clock's tick, and the share of writes that it affects at the rate of this run.
fn ticks(evidence: &Evidence) -> String {
    let (tick, submit_time) = (evidence.tick().unwrap_or_default(), evidence.submit_time);
    let (tick, submit_time) = (tick.as_secs_f64(), submit_time.max(tick).as_secs_f64());
    let one_in = (evidence.requests as f64 * tick / submit_time).round() as usize;
    let share =
        if one_in > 1 { format!("one in {one_in} writes") } else { "every write".to_owned() };
    format!("the clock ticks every {:.0} ms, which affects {share} at this rate", tick * 1e3)
}

/// Returns the test that applies the remedy.
fn tried(remedy: Remedy, test: Test) -> Option<Test> {
    let direct = Test { direct: true, ..test };
    match remedy {
        Remedy::Direct => Some(direct),
        Remedy::Preallocate | Remedy::PreallocateDirect => {
            Some(Test { work: Work::Preallocated, ..direct })
        }
        _ => None,
    }
}

impl Reason {
    /// Returns a stable, machine-readable name such as `cache_hit` or `extending`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::CacheHit => "cache_hit",
            Reason::PartlyCached => "partly_cached",
            Reason::NothingThere => "nothing_there",
            Reason::CacheMiss => "cache_miss",
            Reason::Compression => "compression",
            Reason::Encryption => "encryption",
            Reason::Extending => "extending",
            Reason::Hole => "hole",
            Reason::NeverWritten => "never_written",
            Reason::BufferedWrite => "buffered_write",
            Reason::Unwritten => "unwritten",
            Reason::InCache => "in_cache",
            Reason::Split => "split",
            Reason::WriteRoom => "write_room",
            Reason::ManyPages => "many_pages",
            Reason::FileTimes => "file_times",
            Reason::WriteLock => "write_lock",
            Reason::CopyOnWrite => "copy_on_write",
            Reason::NoNowait => "no_nowait",
            Reason::Fuse => "fuse",
            Reason::Pollable => "pollable",
            Reason::DeviceQueueFull => "device_queue_full",
            Reason::Misaligned => "misaligned",
            Reason::OperationKind => "operation_kind",
            Reason::RingRefused(_) => "ring_refused",
            Reason::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::CacheHit => "the data were in memory",
            Reason::PartlyCached => "a part of the data was in memory",
            Reason::NothingThere => "the file has a hole there, and no data",
            Reason::CacheMiss => "the data were not in memory, and only a few threads fetch them",
            Reason::Compression => "the file is compressed",
            Reason::Encryption => "the file is encrypted, or has no direct I/O",
            Reason::Extending => "each write extends the file",
            Reason::Hole => "each write fills a hole",
            Reason::NeverWritten => "each write goes beyond the last written byte",
            Reason::BufferedWrite => "the filesystem has no asynchronous writes through the cache",
            Reason::Unwritten => "data in the cache have to reach the disk first",
            Reason::InCache => "cached pages of the file have to be evicted first",
            Reason::Split => "the file is fragmented, and writes span several extents",
            Reason::WriteRoom => "the filesystem has metadata space for only a few writes at once",
            Reason::ManyPages => "the filesystem passes reads of more than a page to threads",
            Reason::FileTimes => {
                "the first write after each clock tick updates the file's timestamps, and later writes wait for it"
            }
            Reason::WriteLock => {
                "a write that blocks holds the file's lock, and later writes wait for it"
            }
            Reason::CopyOnWrite => "the filesystem copies on write and keeps checksums",
            Reason::NoNowait => "the filesystem does not support requests that must not wait (RWF_NOWAIT)",
            Reason::Fuse => "the filesystem runs in user space (FUSE), and calls wait for it",
            Reason::Pollable => "the file can be polled, and is assumed never to block",
            Reason::DeviceQueueFull => "the disk's queue was full",
            Reason::Misaligned => "the requests are misaligned",
            Reason::OperationKind => "this kind of operation is never asynchronous",
            Reason::RingRefused(_) => "io_uring is unavailable",
            Reason::Unexplained => "no known reason applies",
        })
    }
}

impl Remedy {
    /// Returns a stable, machine-readable name such as `direct` or `preallocate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Remedy::Nothing => "nothing",
            Remedy::Direct => "direct",
            Remedy::ForgetCache => "forget_cache",
            Remedy::Sync => "sync",
            Remedy::Preallocate => "preallocate",
            Remedy::PreallocateDirect => "preallocate_direct",
            Remedy::WriteOnce => "write_once",
            Remedy::Decompress => "decompress",
            Remedy::InlineEncryption => "inline_encryption",
            Remedy::NoCopyOnWrite => "no_copy_on_write",
            Remedy::AnotherFilesystem => "another_filesystem",
            Remedy::Aio => "aio",
            Remedy::AioOrLazytime => "aio_or_lazytime",
            Remedy::AioOrDefragment => "aio_or_defragment",
            Remedy::AioOrOnePage => "aio_or_one_page",
            Remedy::Lazytime => "lazytime",
            Remedy::Threads => "threads",
            Remedy::LowerDepth => "lower_depth",
            Remedy::FewerWrites => "fewer_writes",
            Remedy::Align => "align",
            Remedy::ExpectWorker => "expect_worker",
            Remedy::AllowRing => "allow_ring",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::Nothing => "none is needed",
            Remedy::Direct => "bypass the cache (O_DIRECT)",
            Remedy::ForgetCache => {
                "drop the file from the cache (posix_fadvise), and use direct I/O only"
            }
            Remedy::Sync => "sync the file first (fsync)",
            Remedy::Preallocate => "preallocate the file (fallocate)",
            Remedy::PreallocateDirect => {
                "preallocate the file (fallocate) and bypass the cache (O_DIRECT)"
            }
            Remedy::WriteOnce => {
                "preallocate the file and write all of it once; or mark the space as valid \
                 (SetFileValidData), if every reader of the file may see what the disk held before"
            }
            Remedy::Decompress => "store the file uncompressed, or read it through the cache",
            Remedy::InlineEncryption => {
                "let the disk encrypt (mount option inlinecrypt), or use another folder"
            }
            Remedy::NoCopyOnWrite => "chattr +C on the file while it is empty, or on its folder",
            Remedy::AnotherFilesystem => {
                "use a volume or a bind mount; a thread pool is as good here"
            }
            Remedy::Aio => "use Linux AIO (backend aio), or a volume or a bind mount",
            Remedy::AioOrLazytime => {
                "use Linux AIO (backend aio), which updates the timestamps inside the call; or mount \
                 with lazytime (Linux 7.0 and later)"
            }
            Remedy::AioOrDefragment => {
                "use Linux AIO (backend aio); or store the file in larger extents (preallocate it \
                 at once, or defragment it), or use smaller blocks"
            }
            Remedy::AioOrOnePage => "use Linux AIO (backend aio), or read one page at a time",
            Remedy::Lazytime => {
                "mount with lazytime (Linux 7.0 and later), or accept that a thread does some of the writes"
            }
            Remedy::Threads => "use a thread pool (backend threads)",
            Remedy::FewerWrites => "keep fewer writes in flight, or use a larger filesystem",
            Remedy::LowerDepth => "keep fewer requests in flight than the queue holds",
            Remedy::Align => "align the buffer, the offset and the length as the error says",
            Remedy::ExpectWorker => "accept that a thread does it",
            Remedy::AllowRing => {
                "allow io_uring in the container's profile, or as administrator \
                 (kernel.io_uring_disabled)"
            }
        })
    }
}

#[cfg(test)]
mod tests;
