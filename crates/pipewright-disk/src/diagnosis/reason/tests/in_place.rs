//! The rows for writes in place: the clock, the file's extents, the cache.

use std::time::Duration;

use pipewright_os::disk::file::NowaitWrites;

use super::{WORKERS, check, deferred, evidence};
use crate::diagnosis::reason::{Reason, Remedy, reasons};
use crate::diagnosis::{Verdict, Work};
use crate::{BackendKind, Class};

#[test]
fn timestamp_updates_give_the_same_verdict_for_any_share() {
    for workers in [0, 2, 16, 444, 500] {
        let counts = [(Class::AsyncDevice, 500 - workers), (Class::Worker, workers)];
        for work in [Work::Overwrite, Work::Preallocated] {
            let found = deferred(true, work, &counts);
            check(&found, &[(Reason::FileTimes, Remedy::AioOrLazytime)]);
            assert_eq!(Verdict::of(&found), Verdict::Partly, "{workers}");
            let words = format!(
                "{workers} of 500 by kernel threads; the clock ticks every 4 ms, which affects one in 250 writes at this rate"
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
