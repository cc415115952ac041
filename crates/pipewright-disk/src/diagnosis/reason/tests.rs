//! The table of reasons, row by row; the last rows are for writes in place: the clock, the extents of the file, the
//! cache.

use std::time::Duration;

use pipewright_os::disk::file::{Facts, Filesystem, NowaitReads, NowaitWrites};

use super::{Reason, Remedy, reasons};
use crate::diagnosis::{Evidence, Test, Verdict, Work};
use crate::{
    BackendKind, Class, Misaligned, Part, UnavailableBackend, UnavailableReason, Unjudged,
};

/// Returns the evidence of a test on an ordinary filesystem.
fn evidence(direct: bool, work: Work, counts: &[(Class, usize)]) -> Evidence {
    let mut facts = Facts::default();
    facts.filesystem = Some(Filesystem::Ext4);
    (facts.nowait, facts.pollable) = (Some(true), Some(false));
    (facts.compressed, facts.encrypted) = (Some(false), Some(false));
    facts.device_queue = Some(256);
    let count =
        |class: &Class| counts.iter().find(|(it, _)| it == class).map_or(0, |(_, count)| *count);
    Evidence {
        test: Test { asynchronous: true, direct, work },
        requests: 500,
        counts: Class::ALL.map(|class| count(&class)),
        facts,
        bypasses_cache: Some(true),
        cached_before: Some(0),
        unwritten_before: Some(0),
        cached_after: Some(0),
        has_hole: Some(false),
        split: (direct && work != Work::Read).then_some(0),
        write_room: None,
        kernel_workers: Some(8),
        worker_limit: 8,
        nowait_reads: None,
        nowait_writes: Some(if direct { NowaitWrites::Taken } else { NowaitWrites::Refused }),
        submit_time: Duration::from_millis(8),
        backend: BackendKind::IoUring,
        unavailable_backends: Vec::new(),
        unjudged: None,
        misaligned: None,
    }
}

#[track_caller]
fn check(evidence: &Evidence, expected: &[(Reason, Remedy)]) {
    let found: Vec<_> = reasons(evidence).iter().map(|it| (it.reason, it.remedy)).collect();
    assert_eq!(found, expected);
}

#[test]
fn windows_writes_beyond_valid_data_inside_the_call() {
    let blocked = &[(Class::InlineBlocked, 400), (Class::PendingButDone, 100)];
    for (work, reason) in [
        (Work::Extend, Reason::Extending),
        (Work::Preallocated, Reason::NeverWritten),
        (Work::Hole, Reason::NeverWritten),
    ] {
        let mut found = evidence(true, work, blocked);
        (found.backend, found.facts.device_queue) = (BackendKind::Overlapped, None);
        check(&found, &[(reason, Remedy::WriteOnce)]);
        let words = &reasons(&found)[0].evidence;
        assert!(words.starts_with("500 of 500 inside the call: "), "{words}");
        found.facts.compressed = Some(true);
        assert_eq!(reasons(&found)[0].reason, Reason::Compression);
    }
}

#[test]
fn aio_extends_and_fills_holes_inside_the_call() {
    for (work, reason) in [(Work::Extend, Reason::Extending), (Work::Hole, Reason::Hole)] {
        let mut found = evidence(true, work, &[(Class::InlineBlocked, 500)]);
        found.backend = BackendKind::Aio;
        check(&found, &[(reason, Remedy::Preallocate)]);
        let words = &reasons(&found)[0].evidence;
        assert!(words.starts_with("500 of 500 inside the call: "), "{words}");
    }
    // Through the cache, the engine's own threads do the work.
    let mut found = evidence(false, Work::Read, WORKERS);
    found.backend = BackendKind::Aio;
    check(&found, &[]);
}

#[test]
fn emulated_calls_have_no_verdict() {
    let mut found = evidence(true, Work::Extend, &[(Class::PendingButDone, 500)]);
    found.backend = BackendKind::Overlapped;
    assert_eq!(Verdict::of(&found), Verdict::Blocked);
    found.unjudged = Some(Unjudged::Imitation);
    assert_eq!(Verdict::of(&found), Verdict::Unknown);
    check(&found, &[]);
}

const WORKERS: &[(Class, usize)] = &[(Class::Worker, 500)];

#[test]
fn asynchronous_requests_have_no_reason() {
    check(
        &evidence(true, Work::Read, &[(Class::AsyncDevice, 490), (Class::InlineBlocked, 10)]),
        &[],
    );
    check(&evidence(false, Work::Read, &[(Class::AsyncPageWait, 500)]), &[]);
    let mut asked = evidence(true, Work::Read, &[(Class::InlineBlocked, 500)]);
    asked.test.asynchronous = false;
    check(&asked, &[]);
    let mut threads = evidence(false, Work::Read, WORKERS);
    threads.backend = BackendKind::Threads;
    check(&threads, &[]);
    // Without evidence there is no finding.
    check(&evidence(true, Work::Read, &[]), &[]);
}

#[test]
fn cache_hit() {
    let mut hit = evidence(false, Work::Read, &[(Class::InlineCached, 500)]);
    hit.cached_before = Some(32 << 20);
    check(&hit, &[(Reason::CacheHit, Remedy::Nothing)]);
    let words = "500 of 500 completed inside the call without sleeping, 32768 KiB of the file in memory before";
    assert_eq!(reasons(&hit)[0].evidence, words);
}

#[test]
fn reads_that_were_partly_in_memory_say_so() {
    for cached in [26, 100, 249] {
        let counts = [(Class::AsyncPageWait, 500 - cached), (Class::InlineCached, cached)];
        let mut part = evidence(false, Work::Read, &counts);
        (part.facts.length, part.cached_before) = (64 << 20, Some(8 << 20));
        check(&part, &[(Reason::PartlyCached, Remedy::Direct)]);
        let words = format!(
            "{cached} of 500 completed inside the call without sleeping, 8192 KiB of the file in memory before"
        );
        assert_eq!(reasons(&part)[0].evidence, words);
        // Only the owner of a file learns how much of it is in memory.
        part.cached_before = None;
        check(&part, &[(Reason::PartlyCached, Remedy::Direct)]);
        (part.cached_before, part.has_hole) = (Some(0), Some(true));
        check(&part, &[(Reason::NothingThere, Remedy::Nothing)]);
        // Direct reads meet no cache, but holes.
        part.test.direct = true;
        check(&part, &[(Reason::NothingThere, Remedy::Nothing)]);
        let mut windows = evidence(false, Work::Read, &counts);
        windows.backend = BackendKind::Overlapped;
        check(&windows, &[(Reason::PartlyCached, Remedy::Direct)]);
    }
}

#[test]
fn the_reason_of_more_reads_comes_first() {
    let miss = (Reason::CacheMiss, Remedy::Direct);
    let cached = (Reason::PartlyCached, Remedy::Direct);
    for (hits, workers, expected) in
        [(100, 400, [miss, cached]), (200, 100, [cached, miss]), (4, 300, [miss, miss])]
    {
        let rest = (Class::AsyncPageWait, 500 - hits - workers);
        let counts = [(Class::InlineCached, hits), (Class::Worker, workers), rest];
        let expected = if hits == 4 { &expected[..1] } else { &expected[..] };
        check(&evidence(false, Work::Read, &counts), expected);
    }
}

#[test]
fn cache_miss_reports_the_workers() {
    let miss = evidence(false, Work::Read, WORKERS);
    check(&miss, &[(Reason::CacheMiss, Remedy::Direct)]);
    let finding = &reasons(&miss)[0];
    assert_eq!(finding.evidence, "500 of 500 by kernel threads, 8 at once (limit 8)");
    assert_eq!(finding.tried, Some(Test { direct: true, ..miss.test }));
}

#[test]
fn direct_reads_wait_for_unwritten_data() {
    let mut fresh = evidence(true, Work::Read, WORKERS);
    (fresh.cached_before, fresh.unwritten_before) = (Some(32 << 20), Some(2 << 20));
    check(&fresh, &[(Reason::Unwritten, Remedy::Sync)]);
    let words = "500 of 500 by kernel threads; 2048 KiB of the file were not on the disk before";
    assert_eq!(reasons(&fresh)[0].evidence, words);
    fresh.test.direct = false;
    check(&fresh, &[(Reason::CacheMiss, Remedy::Direct)]);
}

#[test]
fn less_than_a_kilobyte_is_not_reported_as_none() {
    let mut small = evidence(true, Work::Read, WORKERS);
    small.unwritten_before = Some(3);
    assert!(reasons(&small)[0].evidence.contains("; 1 KiB of the file"));
}

#[test]
fn compression() {
    let mut compressed = evidence(true, Work::Read, WORKERS);
    compressed.facts.filesystem = Some(Filesystem::Btrfs);
    compressed.facts.compressed = Some(true);
    check(&compressed, &[(Reason::Compression, Remedy::Decompress)]);
}

#[test]
fn encryption() {
    let mut encrypted = evidence(true, Work::Overwrite, WORKERS);
    encrypted.facts.encrypted = Some(true);
    (encrypted.bypasses_cache, encrypted.cached_after) = (Some(false), Some(64 << 10));
    check(&encrypted, &[(Reason::Encryption, Remedy::InlineEncryption)]);
    assert!(reasons(&encrypted)[0].evidence.ends_with("; 64 KiB went through the cache anyway"));
    // Reads are asynchronous through the cache, or served from it.
    let mut read = evidence(true, Work::Read, &[(Class::AsyncPageWait, 500)]);
    (read.facts.encrypted, read.bypasses_cache) = (Some(true), Some(false));
    check(&read, &[(Reason::Encryption, Remedy::InlineEncryption)]);
    let mut cached = evidence(true, Work::Read, &[(Class::InlineCached, 500)]);
    (cached.facts.encrypted, cached.bypasses_cache) = (Some(true), Some(false));
    let both =
        [(Reason::Encryption, Remedy::InlineEncryption), (Reason::CacheHit, Remedy::Nothing)];
    check(&cached, &both);
}

#[test]
fn extending_writes_and_holes() {
    let extending = evidence(true, Work::Extend, WORKERS);
    check(&extending, &[(Reason::Extending, Remedy::Preallocate)]);
    let preallocated = Test { work: Work::Preallocated, ..extending.test };
    assert_eq!(reasons(&extending)[0].tried, Some(preallocated));
    check(&evidence(true, Work::Hole, WORKERS), &[(Reason::Hole, Remedy::Preallocate)]);
}

#[test]
fn buffered_writes() {
    let overwrite = evidence(false, Work::Overwrite, WORKERS);
    check(&overwrite, &[(Reason::BufferedWrite, Remedy::Direct)]);
    let both = [
        (Reason::Extending, Remedy::PreallocateDirect),
        (Reason::BufferedWrite, Remedy::PreallocateDirect),
    ];
    check(&evidence(false, Work::Extend, WORKERS), &both);
}

/// Returns the evidence of a test on XFS: the clock ticks twice during the requests.
fn deferred(direct: bool, work: Work, counts: &[(Class, usize)]) -> Evidence {
    let mut found = evidence(direct, work, counts);
    found.facts.filesystem = Some(Filesystem::Xfs);
    found.nowait_writes = Some(NowaitWrites::WaitForTimes { tick: Duration::from_millis(4) });
    found
}

#[test]
fn reads_of_many_pages_go_to_threads_if_only_one_is_accepted() {
    for (nowait, reason, remedy) in [
        (Some(NowaitReads::OfOnePage), Reason::ManyPages, Remedy::AioOrOnePage),
        (Some(NowaitReads::Taken), Reason::Unexplained, Remedy::ExpectWorker),
        (Some(NowaitReads::Refused), Reason::Unexplained, Remedy::ExpectWorker),
        (None, Reason::Unexplained, Remedy::ExpectWorker),
    ] {
        let mut found = evidence(true, Work::Read, WORKERS);
        (found.facts.filesystem, found.nowait_reads) = (Some(Filesystem::Btrfs), nowait);
        check(&found, &[(reason, remedy)]);
    }
}

#[test]
fn copy_on_write() {
    let mut copied = evidence(true, Work::Overwrite, WORKERS);
    copied.facts.filesystem = Some(Filesystem::Btrfs);
    copied.facts.no_copy_on_write = Some(false);
    check(&copied, &[(Reason::CopyOnWrite, Remedy::NoCopyOnWrite)]);
    copied.facts.no_copy_on_write = Some(true);
    check(&copied, &[(Reason::Unexplained, Remedy::ExpectWorker)]);
}

#[test]
fn no_nowait() {
    for (filesystem, name) in [(Filesystem::Tmpfs, "tmpfs"), (Filesystem::Overlay, "overlay")] {
        let mut layered = evidence(true, Work::Extend, WORKERS);
        (layered.facts.filesystem, layered.facts.nowait) = (Some(filesystem), Some(false));
        check(&layered, &[(Reason::NoNowait, Remedy::AnotherFilesystem)]);
        layered.test.work = Work::Read;
        let is_overlay = filesystem == Filesystem::Overlay;
        let remedy = if is_overlay { Remedy::Aio } else { Remedy::AnotherFilesystem };
        check(&layered, &[(Reason::NoNowait, remedy)]);
        let words = format!("500 of 500 by kernel threads: {name} does not support RWF_NOWAIT");
        assert_eq!(reasons(&layered)[0].evidence, words);
    }
}

#[test]
fn fuse() {
    let mut fuse = evidence(true, Work::Read, &[(Class::InlineBlocked, 500)]);
    (fuse.facts.filesystem, fuse.facts.pollable) = (Some(Filesystem::Fuse), Some(true));
    check(&fuse, &[(Reason::Fuse, Remedy::Threads)]);
    // Files in sysfs can be polled too.
    fuse.facts.filesystem = Some(Filesystem::Other(0x6265_6572));
    check(&fuse, &[(Reason::Pollable, Remedy::Threads)]);
}

#[test]
fn device_queue_full() {
    let blocked = [(Class::AsyncDevice, 400), (Class::InlineBlocked, 100)];
    let mut full = evidence(true, Work::Read, &blocked);
    full.facts.device_queue = Some(8);
    check(&full, &[(Reason::DeviceQueueFull, Remedy::LowerDepth)]);
    let words = "100 calls slept; 500 requests for a queue of 8";
    assert_eq!(reasons(&full)[0].evidence, words);
}

#[test]
fn few_sleeping_calls_do_not_explain_workers() {
    let mixed = |blocked| {
        let counts =
            [(Class::AsyncDevice, 150), (Class::Worker, 250), (Class::InlineBlocked, blocked)];
        let mut found = deferred(true, Work::Overwrite, &counts);
        found.facts.device_queue = Some(8);
        found
    };
    check(&mixed(1), &[(Reason::FileTimes, Remedy::AioOrLazytime)]);
    let both =
        [(Reason::FileTimes, Remedy::AioOrLazytime), (Reason::DeviceQueueFull, Remedy::LowerDepth)];
    check(&mixed(100), &both);
    let mut refused = mixed(300);
    refused.unavailable_backends = vec![UnavailableBackend {
        backend: BackendKind::IoUring,
        reason: UnavailableReason::Seccomp,
    }];
    let found: Vec<_> = reasons(&refused).iter().map(|it| it.reason).collect();
    let first = [
        Reason::RingRefused(UnavailableReason::Seccomp),
        Reason::DeviceQueueFull,
        Reason::FileTimes,
    ];
    assert_eq!(found, first);
}

#[test]
fn reads_of_a_hole_are_not_cache_hits() {
    for direct in [true, false] {
        let mut hole = evidence(direct, Work::Read, &[(Class::InlineCached, 500)]);
        (hole.has_hole, hole.facts.length) = (Some(true), 32 << 20);
        check(&hole, &[(Reason::NothingThere, Remedy::Nothing)]);
        // Through the cache, a hole cannot be told from data if most of the file is in memory.
        hole.cached_before = Some(32 << 20);
        let reason = if direct { Reason::NothingThere } else { Reason::CacheHit };
        check(&hole, &[(reason, Remedy::Nothing)]);
    }
}

#[test]
fn misaligned() {
    let mut refused = evidence(true, Work::Read, &[]);
    refused.misaligned =
        Some(Misaligned { part: Part::Length, needed: 512, given: 100, reported: true });
    check(&refused, &[(Reason::Misaligned, Remedy::Align)]);
    let words = "the length of a direct request must be a multiple of 512, got 100";
    assert_eq!(reasons(&refused)[0].evidence, words);
}

#[test]
fn operation_kind() {
    check(&evidence(false, Work::Sync, WORKERS), &[(Reason::OperationKind, Remedy::ExpectWorker)]);
}

#[test]
fn io_uring_unavailable() {
    let mut refused = evidence(true, Work::Read, WORKERS);
    refused.backend = BackendKind::Threads;
    refused.unavailable_backends = vec![UnavailableBackend {
        backend: BackendKind::IoUring,
        reason: UnavailableReason::Seccomp,
    }];
    check(&refused, &[(Reason::RingRefused(UnavailableReason::Seccomp), Remedy::AllowRing)]);
    assert_eq!(reasons(&refused)[0].evidence, "blocked by a seccomp filter");
}

#[test]
fn timestamp_updates_give_the_same_verdict_for_any_share() {
    for workers in [0, 2, 16, 444, 500] {
        let counts = [(Class::AsyncDevice, 500 - workers), (Class::Worker, workers)];
        for work in [Work::Overwrite, Work::Preallocated] {
            let found = deferred(true, work, &counts);
            check(&found, &[(Reason::FileTimes, Remedy::AioOrLazytime)]);
            assert_eq!(Verdict::of(&found), Verdict::Partly, "{workers}");
            let words = format!(
                "{workers} of 500 by kernel threads; the clock ticks every 4 ms, which \
                 affects one in 250 writes at this rate"
            );
            assert_eq!(reasons(&found)[0].evidence, words);
        }
        let counts = [(Class::InlineCached, 500 - workers), (Class::Worker, workers)];
        for work in [Work::Overwrite, Work::Preallocated, Work::Extend, Work::Hole] {
            let found = deferred(false, work, &counts);
            check(&found, &[(Reason::FileTimes, Remedy::Lazytime)]);
            assert_eq!(Verdict::of(&found), Verdict::Partly, "{workers}");
        }
    }
}

#[test]
fn share_of_writes_per_tick_depends_on_the_rate() {
    for (milliseconds, words) in
        [(1, "one in 500 writes"), (500, "one in 4 writes"), (9000, "every write")]
    {
        let mut found = deferred(true, Work::Overwrite, WORKERS);
        found.submit_time = Duration::from_millis(milliseconds);
        let evidence_text = &reasons(&found)[0].evidence;
        assert!(
            evidence_text.ends_with(&format!("which affects {words} at this rate")),
            "{evidence_text}"
        );
    }
}

#[test]
fn timestamps_do_not_explain_writes_that_wait_anyway() {
    // Space has to be found, whatever the clock says.
    check(&deferred(true, Work::Extend, WORKERS), &[(Reason::Extending, Remedy::Preallocate)]);
    check(&deferred(true, Work::Hole, WORKERS), &[(Reason::Hole, Remedy::Preallocate)]);
    check(&deferred(true, Work::Read, WORKERS), &[(Reason::Unexplained, Remedy::ExpectWorker)]);
    let mut cached = deferred(true, Work::Overwrite, WORKERS);
    cached.cached_before = Some(8 << 20);
    check(&cached, &[(Reason::InCache, Remedy::ForgetCache)]);
    let words = "500 of 500 by kernel threads; 8192 KiB of the file were in memory before";
    assert_eq!(reasons(&cached)[0].evidence, words);
    assert_eq!(Verdict::of(&cached), Verdict::Workers);
    // Linux AIO updates the timestamps inside the call.
    let mut aio = deferred(true, Work::Overwrite, &[(Class::AsyncDevice, 500)]);
    aio.backend = BackendKind::Aio;
    check(&aio, &[]);
    assert_eq!(Verdict::of(&aio), Verdict::Asynchronous);
}

#[test]
fn accepted_writes_in_place_that_wait_are_unexplained() {
    let some = [(Class::AsyncDevice, 400), (Class::Worker, 100)];
    let unexplained = [(Reason::Unexplained, Remedy::ExpectWorker)];
    check(&evidence(true, Work::Overwrite, &some), &unexplained);
    let mut unknown = evidence(true, Work::Overwrite, &some);
    unknown.nowait_writes = None;
    check(&unknown, &unexplained);
    // Through the cache, the file's lock is the reason.
    let mut taken =
        evidence(false, Work::Overwrite, &[(Class::InlineCached, 100), (Class::Worker, 400)]);
    taken.nowait_writes = Some(NowaitWrites::Taken);
    check(&taken, &[(Reason::WriteLock, Remedy::Direct)]);
}

#[test]
fn split_writes_go_to_threads() {
    let split = |count| {
        let mut found = evidence(true, Work::Overwrite, WORKERS);
        (found.split, found.nowait_writes) = (Some(count), None);
        found
    };
    check(&split(499), &[(Reason::Split, Remedy::AioOrDefragment)]);
    let words = "500 of 500 by kernel threads; 499 of the writes span more than one extent";
    assert_eq!(reasons(&split(499))[0].evidence, words);
    let mut cached = split(499);
    cached.cached_before = Some(8 << 20);
    let both = [(Reason::Split, Remedy::AioOrDefragment), (Reason::InCache, Remedy::ForgetCache)];
    check(&cached, &both);
    // The clock or the metadata space explains more writes than the split ones.
    let clock = (Reason::FileTimes, Remedy::AioOrLazytime);
    let last = (Reason::Split, Remedy::AioOrDefragment);
    for (count, expected) in [(0, &[clock][..]), (40, &[clock, last]), (251, &[last])] {
        let mut found = deferred(true, Work::Overwrite, WORKERS);
        found.split = Some(count);
        check(&found, expected);
    }
    let mut crowded = split(4);
    crowded.write_room = Some(90);
    check(&crowded, &[(Reason::WriteRoom, Remedy::FewerWrites), last]);
    let words = "500 of 500 by kernel threads; ext4 has metadata space for about 90 at once";
    assert_eq!(reasons(&crowded)[0].evidence, words);
}

#[test]
fn one_split_write_does_not_lead_the_reasons_of_all() {
    let last = (Reason::Split, Remedy::AioOrDefragment);
    let mut one = evidence(true, Work::Overwrite, &[(Class::Worker, 90)]);
    (one.requests, one.split, one.nowait_writes) = (90, Some(1), None);
    check(&one, &[(Reason::Unexplained, Remedy::ExpectWorker), last]);
    let words = "90 of 90 by kernel threads; 1 of the writes spans more than one extent";
    assert_eq!(reasons(&one)[1].evidence, words);
    one.cached_before = Some(8 << 20);
    check(&one, &[(Reason::InCache, Remedy::ForgetCache), last]);
    // Threads did few writes, and the split ones explain most of those.
    one.cached_before = Some(0);
    one.counts =
        evidence(true, Work::Overwrite, &[(Class::AsyncDevice, 80), (Class::Worker, 10)]).counts;
    one.split = Some(8);
    check(&one, &[last]);
}

#[test]
fn linux_aio_is_not_slowed_by_split_writes() {
    let mut split = evidence(true, Work::Overwrite, WORKERS);
    (split.split, split.nowait_writes) = (Some(499), None);
    // Linux AIO never asks the filesystem not to wait.
    let mut aio = split;
    (aio.backend, aio.counts) =
        (BackendKind::Aio, evidence(true, Work::Overwrite, &[(Class::AsyncDevice, 500)]).counts);
    check(&aio, &[]);
}
