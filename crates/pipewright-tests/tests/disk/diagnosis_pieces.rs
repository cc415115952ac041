//! Requests that a filesystem hands to threads: they span fragments or pages, are too many, or change the times of a
//! file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pipewright_disk::diagnosis::{
    DiagnoseOptions, Finding, Measured, Reason, Remedy, Report, Test, Verdict, Work, diagnose,
};
use pipewright_disk::{BackendKind, Engine, EngineOptions, Filesystem, NowaitReads, NowaitWrites};
use pipewright_os::disk::file::write_in_place;
use pipewright_test_macros::isolated_test;
use pipewright_tests::mounts;
use pipewright_tests::skip::{Lack, Need, skipped};
use rustix::fs::{FallocateFlags, fallocate};

use crate::folder;

const BLOCK: usize = 64 << 10;
const PIECE: usize = 16 << 10;
const BLOCKS: usize = 60;

/// A file in pieces that are shorter than a block: each has another's beside it.
fn in_pieces(folder: &Path) -> PathBuf {
    let path = folder.join("pieces");
    let make = |path: &Path| {
        let file = File::create_new(path).unwrap();
        // If available: otherwise each write is a copy.
        let _ = write_in_place(&file);
        file
    };
    let (file, between) = (make(&path), make(&folder.join("between")));
    for number in 0..(BLOCKS * BLOCK / PIECE) as u64 {
        for file in [&file, &between] {
            let place = number * PIECE as u64;
            fallocate(file, FallocateFlags::empty(), place, PIECE as u64).unwrap();
            file.sync_all().unwrap();
        }
    }
    file.write_all_at(&vec![7; BLOCKS * BLOCK], 0).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    path
}

#[track_caller]
fn finding_of(measured: &Measured, reason: Reason, remedy: Remedy) -> Finding {
    assert_eq!(measured.verdict, Verdict::Workers, "{measured:?}");
    let finding = measured.findings[0].clone();
    assert_eq!((finding.reason, finding.remedy), (reason, remedy), "{measured:?}");
    match finding.effect {
        // Linux AIO has no threads.
        Some(effect) => assert_ne!(effect.verdict, Verdict::Workers, "{finding:?}"),
        None => {
            let aio = EngineOptions { backend: BackendKind::Aio, ..EngineOptions::default() };
            let refused = Engine::new(aio).expect_err("what can be had is tried");
            skipped(Need::Aio, refused);
        }
    }
    finding
}

#[isolated_test]
fn requests_sent_to_threads_for_size_or_fragments_are_reported() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    for (kind, bytes) in [("ext4", 64 << 20), ("xfs", 512 << 20), ("btrfs", 160 << 20)] {
        match mounts::loop_mount(folder.path(), kind, bytes, "rw") {
            Ok(disk) => on(disk.path(), kind),
            Err(lack) => lack.skip(),
        }
    }
}

#[isolated_test]
fn writes_without_room_for_metadata_are_reported() {
    let folder = folder();
    let disk = mounts::private()
        .and_then(|()| mounts::loop_mount(folder.path(), "btrfs", 160 << 20, "rw"));
    let disk = match disk {
        Ok(disk) => disk,
        Err(lack) => return lack.skip(),
    };
    write_in_place(&File::open(disk.path()).unwrap()).unwrap();
    let options = DiagnoseOptions {
        requests: 600,
        block_bytes: BLOCK,
        direct: Some(true),
        ..DiagnoseOptions::default()
    };
    let report = diagnose(disk.path(), &options).unwrap();
    if report.backend != Some(BackendKind::IoUring) {
        return skipped(Need::IoUring, "there is no io_uring here");
    }
    for work in [Work::Overwrite, Work::Preallocated] {
        let test = Test { asynchronous: true, direct: true, work };
        let found = report.measured(test).expect("it was made");
        if !matches!(found.verdict, Verdict::Workers | Verdict::Partly) {
            skipped(Need::Luck, format_args!("there was room for all: {:?}", found.evidence));
            continue;
        }
        let Some(room) = found.evidence.write_room else {
            return skipped(
                Need::File("/sys/fs/btrfs"),
                "Btrfs does not tell what it has room for (no sysfs)",
            );
        };
        assert!((1..600).contains(&room), "{room}");
        let finding = found.findings.iter().find(|it| it.reason == Reason::WriteRoom);
        let finding = finding.unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(finding.remedy, Remedy::FewerWrites);
    }
}

fn on(disk: &Path, kind: &str) {
    let options = DiagnoseOptions {
        requests: BLOCKS,
        block_bytes: BLOCK,
        direct: Some(true),
        write_existing: true,
        ..DiagnoseOptions::default()
    };
    let report = diagnose(in_pieces(disk), &options).unwrap();
    if report.backend != Some(BackendKind::IoUring) {
        return skipped(Need::IoUring, "there is no io_uring here");
    }
    let of = |work| {
        report.measured(Test { asynchronous: true, direct: true, work }).expect("it was made")
    };
    let written = of(Work::Overwrite);
    match written.evidence.split {
        Some(BLOCKS) => {
            let finding = finding_of(written, Reason::Split, Remedy::AioOrDefragment);
            let words = "60 of 60 by kernel threads; 60 of the writes span more than one extent";
            assert_eq!(finding.evidence, words);
        }
        split => skipped(Need::Storage, format_args!("no small pieces on {kind}: {split:?}")),
    }
    // In one piece, on a disk with nothing else.
    let whole = of(Work::Preallocated);
    let is_told = whole.evidence.write_room.is_some();
    if kind == "btrfs" && !is_told {
        skipped(Need::File("/sys/fs/btrfs"), "Btrfs does not tell what it has room for (no sysfs)");
    }
    assert!(kind == "btrfs" || !is_told, "{whole:?}");
    assert!(!whole.findings.iter().any(|it| it.reason == Reason::Split), "{whole:?}");
    let read = of(Work::Read);
    match (kind, read.evidence.nowait_reads) {
        ("btrfs", Some(NowaitReads::OfOnePage)) => {
            finding_of(read, Reason::ManyPages, Remedy::AioOrOnePage);
        }
        ("btrfs", other) => skipped(Need::Storage, format_args!("done otherwise: {other:?}")),
        _ => assert!(!read.findings.iter().any(|it| it.reason == Reason::ManyPages), "{read:?}"),
    }
}

const WORKS: [Work; 4] = [Work::Overwrite, Work::Preallocated, Work::Extend, Work::Hole];

/// Returns the measured writes of these kinds.
fn writes(report: &Report, direct: bool, works: &[Work]) -> Vec<Measured> {
    let test = |work| Test { asynchronous: true, direct, work };
    works.iter().map(|work| report.measured(test(*work)).expect("it was made").clone()).collect()
}

/// Checks XFS: it refuses a write that must not wait and changes the times (from Linux 6.0 on).
fn check_xfs(report: &Report) -> Result<(), Lack> {
    let in_place = &WORKS[..2];
    for (direct, works, remedy) in
        [(true, in_place, Remedy::AioOrLazytime), (false, &WORKS[..], Remedy::Lazytime)]
    {
        for found in writes(report, direct, works) {
            let Some(NowaitWrites::WaitForTimes { tick }) = found.evidence.nowait_writes else {
                let detail = format!("XFS does not put them off: {:?}", found.evidence);
                return Err(Lack::new(Need::Kernel("6.0"), detail));
            };
            let (millisecond, slowest) = (Duration::from_millis(1), Duration::from_millis(10));
            assert!((millisecond..=slowest).contains(&tick), "{tick:?}");
            assert_eq!(found.verdict, Verdict::Partly, "{:?}", found.evidence);
            let finding = found.findings.iter().find(|it| it.reason == Reason::FileTimes);
            let finding = finding.unwrap_or_else(|| panic!("{found:?}"));
            assert_eq!(finding.remedy, remedy);
            assert!(direct || finding.effect.is_none(), "{finding:?}");
            if let Some(effect) = finding.effect {
                // It has no threads that could do it.
                assert_ne!(effect.verdict, Verdict::Workers, "{effect:?}");
            }
        }
    }
    for found in writes(report, true, &[Work::Extend]) {
        assert_eq!(found.findings[0].reason, Reason::Extending, "{found:?}");
    }
    Ok(())
}

/// Checks ext4: a direct write that must not wait changes the times inside the call, and a buffered one is refused.
fn check_ext4(report: &Report) {
    for direct in [true, false] {
        let nowait = if direct { NowaitWrites::Taken } else { NowaitWrites::Refused };
        for found in writes(report, direct, &WORKS) {
            assert_eq!(found.evidence.nowait_writes, Some(nowait), "{:?}", found.evidence);
            let is_times = found.findings.iter().any(|it| it.reason == Reason::FileTimes);
            assert!(!is_times, "{found:?}");
        }
    }
}

#[isolated_test]
fn writes_that_change_the_times_are_judged_alike_in_every_run() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    if pipewright_tests::skip::is_forced_off("io_uring") {
        return skipped(Need::IoUring, "there is no io_uring in this build");
    }
    for (kind, bytes) in [("xfs", 512 << 20), ("ext4", 64 << 20)] {
        let disk = match mounts::loop_mount(folder.path(), kind, bytes, "rw") {
            Ok(disk) => disk,
            Err(lack) => {
                lack.skip();
                continue;
            }
        };
        // Few enough to fit between two ticks, and many enough that some do not; both are fewer than the
        // queue of the disk takes.
        for requests in [20, 60, 120] {
            let options = DiagnoseOptions { requests, block_bytes: 16 << 10, ..Default::default() };
            let report = diagnose(disk.path(), &options).unwrap();
            if report.filesystem != Some(Filesystem::Xfs.name()) {
                check_ext4(&report);
            } else if let Err(lack) = check_xfs(&report) {
                return lack.skip();
            }
        }
    }
}
