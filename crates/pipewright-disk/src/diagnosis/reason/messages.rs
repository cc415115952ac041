//! The texts of reasons, evidence and remedies.

use std::fmt;

use pipewright_os::disk::file::Filesystem;

use super::{Evidence, Finding, Reason, Remedy, Test, Work};
use crate::{BackendKind, Class};

/// Returns the finding for a reason.
pub(super) fn finding(reason: Reason, evidence: &Evidence) -> Finding {
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
                "preallocate the file and write all of it once; or mark the space as valid (SetFileValidData), if every reader of the file may see what the disk held before"
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
                "use Linux AIO (backend aio), which updates the timestamps inside the call; or mount with lazytime (Linux 7.0 and later)"
            }
            Remedy::AioOrDefragment => {
                "use Linux AIO (backend aio); or store the file in larger extents (preallocate it at once, or defragment it), or use smaller blocks"
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
            Remedy::AllowRing => "allow io_uring in the container's profile, or as administrator (kernel.io_uring_disabled)",
        })
    }
}
