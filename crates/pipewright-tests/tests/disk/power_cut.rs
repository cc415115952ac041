//! Power cuts and bad sectors, on disks of the device mapper. `ci/kernels.sh all` runs these in a machine with spare disks.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use pipewright_disk::{DiskFile, ErrorKind, Operation};
use pipewright_test_macros::isolated_test;
use pipewright_tests::mapped_disk::{MappedDisk, WriteLog, spare_disks};
use pipewright_tests::{mounts, pace, skip::skipped};

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

/// Chooses numbers in a fixed but irregular order.
struct Choice(u64);

impl Choice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Each record is written and synced, and then a mark goes into the disk's log. For a cut at any place in the log the
/// test makes the disk again: everything until the last flush before the cut, and any part of what came after it. The
/// records whose marks are before the cut have to be there.
#[isolated_test(limit = pace::seconds(300))]
fn synced_records_survive_a_power_cut_at_any_moment() {
    let [disk, log] = match spare_disks() {
        Ok(disks) => disks,
        Err(reason) => return skipped(&reason),
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
    let made = log.writes.iter().position(|write| write.mark.as_deref() == Some("made")).unwrap();
    let marks = log.writes.iter().filter(|write| write.mark.is_some()).count();
    assert!(marks > names.len() * RECORDS, "the log has {marks} marks");

    let mut choice = Choice(7);
    let mut cuts: Vec<_> = (0..60).map(|_| made + choice.below(log.writes.len() - made)).collect();
    cuts.push(log.writes.len());
    cuts.sort_unstable();
    let image = folder.path().join("image.img");
    let flushed = File::create(&image).unwrap();
    flushed.set_len(pipewright_tests::mapped_disk::disk_bytes(&disk).unwrap()).unwrap();
    let mut replayed = 0;
    let (mut lost, mut checked) = (0, 0);
    for cut in cuts {
        // A flush brings to the disk what was complete before it, and dm-log-writes has only that before it.
        let last_flush = log.writes[..cut].iter().rposition(|write| write.is_flush);
        let safe = last_flush.map_or(0, |at| at + 1).max(replayed);
        for write in &log.writes[replayed..safe] {
            log.replay(write, &flushed).unwrap();
        }
        replayed = safe;
        let after_cut = folder.path().join("cut.img");
        std::fs::copy(&image, &after_cut).unwrap();
        let after = File::options().write(true).open(&after_cut).unwrap();
        for write in &log.writes[safe..cut] {
            if write.is_forced || choice.below(2) == 0 {
                log.replay(write, &after).unwrap();
            } else {
                lost += usize::from(write.bytes > 0);
            }
        }
        drop(after);
        let mounted = mounts::mount_image(folder.path(), &after_cut, "ext4", "rw").unwrap();
        for mark in log.writes[..cut].iter().filter_map(|write| write.mark.as_deref()) {
            let Some((engine, number)) = mark.split_once(':') else { continue };
            let (engine, number) = (engine.parse::<usize>().unwrap(), number.parse().unwrap());
            let mut found = vec![0; BLOCK];
            let file = File::open(mounted.path().join(engine.to_string())).unwrap();
            file.read_exact_at(&mut found, (number * BLOCK) as u64).unwrap();
            assert!(
                found == record(engine, number),
                "{}, record {number}, cut {cut}",
                names[engine]
            );
            checked += 1;
        }
        drop(mounted);
    }
    pipewright_tests::skip::counted(&format!(
        "{} writes, {checked} synced records were found after 61 cuts that lost {lost} unsynced writes",
        log.writes.len(),
    ));
}

#[isolated_test]
fn bad_sectors_fail_alone_and_by_name() {
    const BAD: std::ops::Range<u64> = 1 << 20..(1 << 20) + BLOCK as u64;
    let [disk] = match spare_disks() {
        Ok(disks) => disks,
        Err(reason) => return skipped(&reason),
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
            assert!(done.buffer[..] == content[from..to], "{name}");
        }
        let buffer = file.buffer(BLOCK).unwrap();
        let done = tested.run(Operation::read_exact_at(&file, buffer, BAD.start));
        let error = done.result.unwrap_err();
        assert_eq!((error.kind(), error.bytes()), (&ErrorKind::Device, 0), "{name}: {error}");
    }
}
