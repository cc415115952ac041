//! Reasons, evidence and remedies in words.

use std::fmt;

use pipewright_os::disk::file::Filesystem;

use super::{Evidence, Finding, Reason, Remedy, Test, Work};
use crate::{BackendKind, Class};

/// A reason with what it is drawn from.
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
    let (evidence_words, remedy) = match reason {
        Reason::CacheHit => {
            let cached = evidence.cached_before.map_or(String::new(), |bytes| {
                format!(", {} KiB of it in memory before", bytes / 1024)
            });
            let inline = evidence.count(Class::InlineCached);
            (
                format!("{inline} of {blocks} done inside the call without a sleep{cached}"),
                Remedy::Nothing,
            )
        }
        Reason::NothingThere => {
            let inline = evidence.count(Class::InlineCached);
            let words =
                format!("{inline} of {blocks} done inside the call, and the file has a hole");
            (words, Remedy::Nothing)
        }
        Reason::CacheMiss => {
            let busy = match evidence.kernel_workers {
                Some(count) => format!(
                    "{workers}, {count} of them at once (at most {})",
                    evidence.worker_limit
                ),
                None => workers,
            };
            (busy, Remedy::Direct)
        }
        Reason::Compression => ("it is stored compressed".to_owned(), Remedy::Decompress),
        Reason::Encryption => {
            let grown = match (evidence.cached_before, evidence.cached_after) {
                (Some(before), Some(after)) if evidence.test.direct && after > before => {
                    format!(
                        ", and {} KiB went through the cache all the same",
                        (after - before) / 1024
                    )
                }
                _ => String::new(),
            };
            let told = if facts.encrypted == Some(true) {
                "it is stored encrypted by the filesystem"
            } else {
                "the filesystem says that it has no direct I/O"
            };
            (format!("{told}{grown}"), Remedy::InlineEncryption)
        }
        Reason::Extending | Reason::Hole => {
            let remedy = match (evidence.backend, evidence.test.direct) {
                (BackendKind::Overlapped, _) => Remedy::WriteOnce,
                (_, true) => Remedy::Preallocate,
                (_, false) => Remedy::PreallocateDirect,
            };
            (format!("{workers}: room on the disk has to be found for each"), remedy)
        }
        Reason::NeverWritten => (
            format!("{workers}: zeros are written first up to where each begins"),
            Remedy::WriteOnce,
        ),
        Reason::BufferedWrite | Reason::WriteLock => {
            let remedy = match evidence.test.work {
                Work::Overwrite | Work::Preallocated => Remedy::Direct,
                _ => Remedy::PreallocateDirect,
            };
            (format!("{workers}, one at a time for each file: {filesystem}"), remedy)
        }
        Reason::Unwritten => {
            let unwritten = evidence.unwritten_before.unwrap_or_default() / 1024;
            (format!("{workers}, {unwritten} KiB of it not on the disk before"), Remedy::Sync)
        }
        Reason::InCache => {
            let cached = evidence.cached_before.unwrap_or_default() / 1024;
            (format!("{workers}, {cached} KiB of it in memory before"), Remedy::ForgetCache)
        }
        Reason::Split => {
            let split = evidence.split.unwrap_or_default();
            let words = format!("{workers}; {split} of the writes meet more than one extent");
            (words, Remedy::AioOrDefragment)
        }
        Reason::WriteRoom => {
            let room = evidence.write_room.unwrap_or_default();
            let words = format!("{workers}; {filesystem} has room for about {room} at once");
            (words, Remedy::FewerWrites)
        }
        Reason::ManyPages => (
            format!(
                "{workers}: {filesystem} refuses them with RWF_NOWAIT, and not those of a page"
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
                // The layer below is asked, and no thread of the kernel stands in between.
                Test { direct: true, work, .. } if is_layered && work != Work::Extend => {
                    Remedy::Aio
                }
                _ => Remedy::AnotherFilesystem,
            };
            (format!("{workers}: {filesystem} does not know RWF_NOWAIT"), remedy)
        }
        Reason::Fuse | Reason::Pollable => {
            let slept = evidence.count(Class::InlineBlocked);
            (format!("{slept} of {blocks} kept the caller asleep: {filesystem}"), Remedy::Threads)
        }
        Reason::DeviceQueueFull => {
            let room = facts.device_queue.unwrap_or_default();
            let slept = evidence.count(Class::InlineBlocked);
            let words =
                format!("{slept} calls slept, with {blocks} requests for a queue of {room}");
            (words, Remedy::LowerDepth)
        }
        Reason::Misaligned => {
            let words =
                evidence.misaligned.map_or(String::new(), |misaligned| misaligned.to_string());
            (words, Remedy::Align)
        }
        Reason::OperationKind => (workers, Remedy::ExpectWorker),
        Reason::RingRefused(reason) => (reason.to_string(), Remedy::AllowRing),
        Reason::Unexplained => (workers, Remedy::ExpectWorker),
    };
    let tried = tried(remedy, evidence.test);
    Finding { reason, evidence: evidence_words, remedy, tried, effect: None }
}

/// How often the clock ticks, and what that comes to at the rate of this run.
fn ticks(evidence: &Evidence) -> String {
    let (tick, asked) = (evidence.tick().unwrap_or_default(), evidence.asked);
    let (tick, asked) = (tick.as_secs_f64(), asked.max(tick).as_secs_f64());
    let one_in = (evidence.requests as f64 * tick / asked).round() as usize;
    let share =
        if one_in > 1 { format!("one in {one_in} writes") } else { "every write".to_owned() };
    format!("the clock ticks every {:.0} ms, at this rate for {share}", tick * 1e3)
}

/// The test that does what the remedy says.
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
    /// A name for machines, which stays as it is: `cache_hit`, `extending`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::CacheHit => "cache_hit",
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
            Reason::NothingThere => "the file has a hole there, and no data",
            Reason::CacheMiss => "the data were not in memory, and few threads fetch them",
            Reason::Compression => "the file is compressed",
            Reason::Encryption => "the file is encrypted, or has no direct I/O",
            Reason::Extending => "each write extends the file",
            Reason::Hole => "each write fills a hole",
            Reason::NeverWritten => "each write goes where nothing was ever written",
            Reason::BufferedWrite => "the filesystem has no asynchronous writes through the cache",
            Reason::Unwritten => "what was written to it has to reach the disk first",
            Reason::InCache => "what the cache has of the file has to be thrown out first",
            Reason::Split => "the file lies in small pieces, and each write meets several",
            Reason::WriteRoom => "the filesystem has room for the accounts of few writes at once",
            Reason::ManyPages => "the filesystem has reads of more than a page done by threads",
            Reason::FileTimes => {
                "the first write after each tick of the clock changes the times of the file, and those behind it wait for that"
            }
            Reason::WriteLock => {
                "a write that has to wait has the file locked, and those behind it wait too"
            }
            Reason::CopyOnWrite => "the filesystem copies on write and keeps checksums",
            Reason::NoNowait => "the filesystem cannot be asked not to wait",
            Reason::Fuse => "the filesystem is a program, and waits for it is_existing_file the caller",
            Reason::Pollable => "the file can be polled, and is taken for one that never waits",
            Reason::DeviceQueueFull => "the queue of the disk was full",
            Reason::Misaligned => "the requests are not aligned",
            Reason::OperationKind => "operations of that kind never are",
            Reason::RingRefused(_) => "io_uring cannot be used",
            Reason::Unexplained => "nothing that was looked at explains it",
        })
    }
}

impl Remedy {
    /// A name for machines, which stays as it is: `direct`, `preallocate`.
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
                "have the cache forget it (posix_fadvise), and read and write it past the cache alone"
            }
            Remedy::Sync => "sync it before (fsync)",
            Remedy::Preallocate => "give the file its room first (fallocate)",
            Remedy::PreallocateDirect => {
                "give the file its room first (fallocate) and bypass the cache (O_DIRECT)"
            }
            Remedy::WriteOnce => {
                "give the file its room and write all of it once; or, where nobody can read it who must not see what the disk held, have the room taken for written (SetFileValidData)"
            }
            Remedy::Decompress => "store it without compression, or read it through the cache",
            Remedy::InlineEncryption => {
                "let the disk encrypt (mount option inlinecrypt), or use another folder"
            }
            Remedy::NoCopyOnWrite => "chattr +C on the file while it is empty, or on its folder",
            Remedy::AnotherFilesystem => {
                "use a volume or a bind mount; a pool of threads is as good here"
            }
            Remedy::Aio => "use Linux AIO (backend aio), or a volume or a bind mount",
            Remedy::AioOrLazytime => {
                "use Linux AIO (backend aio), which changes them inside the call; or mount with lazytime (Linux 7.0 and later)"
            }
            Remedy::AioOrDefragment => {
                "use Linux AIO (backend aio); or have the file in larger pieces (room for all of it at once, or defragmented), or smaller blocks"
            }
            Remedy::AioOrOnePage => "use Linux AIO (backend aio), or read a page at once",
            Remedy::Lazytime => {
                "mount with lazytime (Linux 7.0 and later), or expect a thread to do some"
            }
            Remedy::Threads => "use a pool of threads (backend threads)",
            Remedy::FewerWrites => "have fewer writes under way, or a larger filesystem",
            Remedy::LowerDepth => "have fewer requests under way than the queue takes",
            Remedy::Align => "align the buffer, the offset and the length as the error says",
            Remedy::ExpectWorker => "expect a thread to do it",
            Remedy::AllowRing => "let the container's profile or the administrator allow io_uring",
        })
    }
}
