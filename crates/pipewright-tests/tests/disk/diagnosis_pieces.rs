//! Requests that a filesystem hands to threads because they span fragments or pages, or are too many.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pipewright_disk::diagnosis::{
    DiagnoseOptions, Finding, Measured, Reason, Remedy, Test, Verdict, Work, diagnose,
};
use pipewright_disk::{BackendKind, Engine, EngineOptions, NowaitReads};
use pipewright_os::disk::file::write_in_place;
use pipewright_test_macros::isolated_test;
use pipewright_tests::mounts;
use pipewright_tests::skip::{Need, skipped};
use rustix::fs::{FallocateFlags, fallocate};

use super::folder;

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
    if report.backend != Some(BackendKind::Uring) {
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
    if report.backend != Some(BackendKind::Uring) {
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
