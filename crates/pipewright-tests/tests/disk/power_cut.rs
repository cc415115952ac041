//! Power cuts and bad sectors, on disks of the device mapper. `ci/kernels.sh all` runs these in a machine with spare
//! disks.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use pipewright_disk::{DiskFile, ErrorKind, Operation};
use pipewright_test_macros::isolated_test;
use pipewright_tests::mapped_disk::{self, MappedDisk, WriteLog, spare_disks};
use pipewright_tests::{mounts, pace};

use super::{folder, pattern, tested_engines};

const BLOCK: usize = 4096;
const RECORDS: usize = 12;

/// Returns the contents of a record.
fn record(engine: usize, number: usize) -> Vec<u8> {
    let seed = (engine * RECORDS + number) as u64;
    (0..BLOCK as u64)
        .map(|byte| (((seed + 1) * 2_654_435_761 + byte * 40_503) >> 7) as u8)
        .collect()
}

/// Each record is written and synced, and then a mark goes into the disk's log. For a cut at any place in the log the
/// test makes the disk again: everything until the last flush before the cut, and any part of what came after it. The
/// records whose marks are before the cut have to be there.
#[isolated_test(limit = pace::seconds(300))]
fn synced_records_survive_a_power_cut_at_any_moment() {
    let [disk, log] = match spare_disks() {
        Ok(disks) => disks,
        Err(lack) => return lack.skip(),
    };
    let folder = folder();
    mounts::private().unwrap();
    let mut names = Vec::new();
    {
        let mapped = MappedDisk::with_log("pipewright-logged", &disk, &log).unwrap();
        let mounted = mounts::mount_disk(folder.path(), mapped.path(), "ext4").unwrap();
        mapped.mark("made").unwrap();
        for (engine, (name, mut tested)) in tested_engines().into_iter().enumerate() {
            let direct = engine % 2 == 0;
            let path = mounted.path().join(engine.to_string());
            let options = DiskFile::options().write(true).create(true).direct(direct);
            let file = options.open(&path).unwrap();
            // A new name is in its folder only after a sync of that folder.
            File::open(mounted.path()).unwrap().sync_all().unwrap();
            for number in 0..RECORDS {
                let mut buffer = file.buffer(BLOCK).unwrap();
                buffer.copy_from_slice(&record(engine, number));
                let at = (number * BLOCK) as u64;
                let written = tested.run(Operation::write_all_at(&file, buffer, at));
                assert_eq!(written.result.unwrap().bytes, BLOCK, "{name}");
                tested.run(Operation::sync_data(&file)).result.unwrap();
                mapped.mark(&format!("{engine}:{number}")).unwrap();
            }
            names.push(name);
        }
    }
    let log = WriteLog::read(&log).unwrap();
    let marks = log.writes.iter().filter(|write| write.mark.is_some()).count();
    assert!(marks > names.len() * RECORDS, "the log has {marks} marks");

    let mut checked = 0;
    let lost = mapped_disk::cut_at_random(&log, &disk, folder.path(), "made", 60, |cut| {
        let mounted = mounts::mount_image(folder.path(), cut.image, "ext4", "rw").unwrap();
        for mark in &cut.marks {
            let Some((engine, number)) = mark.split_once(':') else { continue };
            let (engine, number) = (engine.parse::<usize>().unwrap(), number.parse().unwrap());
            let mut found = vec![0; BLOCK];
            let file = File::open(mounted.path().join(engine.to_string())).unwrap();
            file.read_exact_at(&mut found, (number * BLOCK) as u64).unwrap();
            assert!(
                found == record(engine, number),
                "{}, record {number}, cut {}",
                names[engine],
                cut.at
            );
            checked += 1;
        }
    });
    let lost = lost.unwrap();
    pipewright_tests::skip::counted(&format!(
        "{} writes, {checked} synced records were found after 61 cuts that lost {lost} unsynced writes",
        log.writes.len(),
    ));
}

/// Returns the place where the bytes begin to differ, the bytes there, and where they agree again.
fn first_difference(found: &[u8], expected: &[u8]) -> Option<(usize, Vec<u8>, usize)> {
    assert_eq!(found.len(), expected.len());
    let differs = |at: &usize| found[*at] != expected[*at];
    let start = (0..found.len()).find(differs)?;
    let end = (start..found.len())
        .find(|at| found[*at..].iter().zip(&expected[*at..]).take(512).all(|(a, b)| a == b));
    let shown = found[start..].iter().take(16).copied().collect();
    Some((start, shown, end.unwrap_or(found.len())))
}

#[isolated_test]
fn bad_sectors_fail_alone_and_by_name() {
    const BAD: std::ops::Range<u64> = 1 << 20..(1 << 20) + BLOCK as u64;
    let [disk] = match spare_disks() {
        Ok(disks) => disks,
        Err(lack) => return lack.skip(),
    };
    let mapped = MappedDisk::with_bad_bytes("pipewright-bad", &disk, BAD).unwrap();
    let content = pattern(2 << 20);
    for (name, mut tested) in tested_engines() {
        let options = DiskFile::options().read(true).write(true).direct(true);
        let file = options.open(mapped.path()).unwrap();
        let mut buffer = file.buffer(content.len()).unwrap();
        buffer.copy_from_slice(&content);
        let done = tested.run(Operation::write_all_at(&file, buffer, 0));
        let error = done.result.unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (&ErrorKind::Device, Some(5)), "{name}");
        // The kernel may count less than was written, never more.
        let written = error.bytes();
        assert!(written as u64 <= BAD.start, "{name}: {written}");
        // Everything around them works.
        for (from, to) in [(0, BAD.start as usize), (BAD.end as usize, content.len())] {
            let mut buffer = file.buffer(to - from).unwrap();
            buffer.copy_from_slice(&content[from..to]);
            tested.run(Operation::write_all_at(&file, buffer, from as u64)).result.unwrap();
            let buffer = file.buffer(to - from).unwrap();
            let done = tested.run(Operation::read_exact_at(&file, buffer, from as u64));
            assert_eq!(done.result.unwrap().bytes, to - from, "{name}");
            assert_eq!(
                first_difference(&done.buffer, &content[from..to]),
                None,
                "{name}, from {from}"
            );
        }
        let buffer = file.buffer(BLOCK).unwrap();
        let done = tested.run(Operation::read_exact_at(&file, buffer, BAD.start));
        let error = done.result.unwrap_err();
        assert_eq!((error.kind(), error.bytes()), (&ErrorKind::Device, 0), "{name}: {error}");
    }
}
