//! Every byte that is read is the byte that was written: for every backend, block size, alignment, short read
//! and end of file.

use std::cell::RefCell;

use pipewright_disk::{AlignedBuf, DiskFile, EngineOptions, ErrorKind, Operation, SharedEngine};
#[cfg(windows)]
use pipewright_disk::{BackendKind, Class};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, is_wine, skipped};
use proptest::prelude::*;

use crate::{BACKENDS, TestedEngine, engine, file_with, folder, pattern, tested_engines};

/// One operation of a script; places and lengths are in granules.
#[derive(Debug, Clone)]
enum Act {
    Write { at: u64, count: usize, seed: u8 },
    Read { at: u64, count: usize },
    ReadExact { at: u64, count: usize },
    SetLen { bytes: u64 },
    Preallocate { bytes: u64 },
    Sync,
}

/// Returns scripts with offsets below that many granules, and file lengths below that many bytes.
fn acts(granules: u64, bytes: u64) -> impl Strategy<Value = Vec<Act>> {
    let (at, count) = (0..granules, 0..granules as usize / 2);
    let act = prop_oneof![
        (at.clone(), count.clone(), any::<u8>()).prop_map(|(at, count, seed)| Act::Write {
            at,
            count,
            seed
        }),
        (at.clone(), count.clone()).prop_map(|(at, count)| Act::Read { at, count }),
        (at, count).prop_map(|(at, count)| Act::ReadExact { at, count }),
        (0..bytes).prop_map(|bytes| Act::SetLen { bytes }),
        (1..bytes).prop_map(|bytes| Act::Preallocate { bytes }),
        Just(Act::Sync),
    ];
    prop::collection::vec(act, 1..24)
}

/// The expected content of the file, and the engine that a script runs on.
struct Model<'a> {
    tested: &'a mut TestedEngine,
    file: DiskFile,
    bytes: Vec<u8>,
    granule: usize,
}

impl Model<'_> {
    fn buffer(&self, count: usize) -> AlignedBuf {
        self.file.buffer(count * self.granule).unwrap()
    }

    fn act(&mut self, act: &Act) {
        let granule = self.granule;
        match *act {
            Act::Write { at, count, seed } => {
                let (at, mut buffer) = (at as usize * granule, self.buffer(count));
                for (place, byte) in buffer.iter_mut().enumerate() {
                    *byte = seed ^ (place as u8) ^ ((place >> 8) as u8);
                }
                let written = buffer.to_vec();
                let done = self.tested.run(Operation::write_all_at(&self.file, buffer, at as u64));
                assert_eq!(done.result.unwrap().bytes, written.len());
                assert_eq!(done.buffer[..], written, "a write changed its buffer");
                if !written.is_empty() {
                    let end = at + written.len();
                    self.bytes.resize(self.bytes.len().max(end), 0);
                    self.bytes[at..end].copy_from_slice(&written);
                }
            }
            Act::Read { at, count } => self.read(at as usize * granule, count, false),
            Act::ReadExact { at, count } => self.read(at as usize * granule, count, true),
            Act::SetLen { bytes } => {
                self.file.set_len(bytes).unwrap();
                self.bytes.resize(bytes as usize, 0);
            }
            Act::Preallocate { bytes } => {
                let done = self.tested.run(Operation::preallocate(&self.file, 0, bytes));
                match done.result {
                    Ok(_) => self.bytes.resize(self.bytes.len().max(bytes as usize), 0),
                    Err(error) => assert_eq!(error.kind(), &ErrorKind::Unsupported, "{error}"),
                }
            }
            Act::Sync => {
                assert_eq!(
                    self.tested.run(Operation::sync_all(&self.file)).result.unwrap().bytes,
                    0
                );
                assert_eq!(
                    self.tested.run(Operation::sync_data(&self.file)).result.unwrap().bytes,
                    0
                );
            }
        }
        assert_eq!(self.file.len().unwrap(), self.bytes.len() as u64);
    }

    fn read(&mut self, at: usize, count: usize, exact: bool) {
        let (wanted, there) = (count * self.granule, self.bytes.len().saturating_sub(at));
        let expected = &self.bytes[at.min(self.bytes.len())..];
        let expected = &expected[..wanted.min(there)];
        let mut buffer = self.buffer(count);
        buffer.fill(0xa5);
        let make = if exact { Operation::read_exact_at } else { Operation::read_at };
        let done = self.tested.run(make(&self.file, buffer, at as u64));
        assert_eq!(done.buffer.len(), wanted);
        match done.result {
            Ok(completion) => {
                assert_eq!(completion.bytes, expected.len(), "at {at}");
                assert!(!exact || wanted <= there);
            }
            Err(error) => {
                let got = expected.len();
                assert_eq!(error.kind(), &ErrorKind::EndOfFile { wanted, got }, "{error}");
                assert!(exact && wanted > there);
                assert_eq!(error.bytes(), got);
            }
        }
        assert_eq!(&done.buffer[..expected.len()], expected, "at {at}");
        if done.buffer.len() > expected.len() && !self.file.is_direct() {
            assert!(done.buffer[expected.len()..].iter().all(|byte| *byte == 0xa5));
        }
    }
}

fn scripts(direct: bool) {
    let folder = folder();
    let first = pattern(10_000);
    let probe = file_with(&folder, "probe", &first, direct);
    let granule = if direct { probe.alignment().offset } else { 1 };
    let granules = if direct { 24 } else { 12_000 };
    for (number, (name, tested)) in tested_engines().into_iter().enumerate() {
        let tested = RefCell::new(tested);
        let config =
            ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(acts in acts(granules, 12_000))| {
            let file = file_with(&folder, &format!("f{number}"), &first, direct);
            let mut model = Model { tested: &mut tested.borrow_mut(), file, bytes: first.clone(), granule };
            for act in &acts {
                model.act(act);
            }
            let end = std::fs::read(model.file.path()).unwrap();
            prop_assert!(end == model.bytes, "{}: the file is another one in the end", name);
        });
    }
}

#[watched_test]
fn cached_writes_are_read_back() {
    scripts(false);
}

#[watched_test]
fn direct_writes_are_read_back() {
    scripts(true);
}

#[watched_test]
fn concurrent_operations_go_to_their_own_offsets() {
    const BLOCKS: u64 = 300;
    const BLOCK: usize = 4096;
    let folder = folder();
    let content = pattern(BLOCKS as usize * BLOCK);
    for backend in BACKENDS {
        for (classes, direct) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = EngineOptions {
                backend,
                depth: 64,
                classes,
                times: classes,
                cached_first: !classes,
                ..EngineOptions::default()
            };
            let Some(mut engine) = engine(options) else { continue };
            let file = file_with(&folder, "many", &[], direct);
            // Each once, far from its neighbours: 7 and 300 have no common factor.
            let mut order = (0..BLOCKS).map(|number| number * 7 % BLOCKS);
            let mut orders = Vec::new();
            let mut done = 0;
            while done < BLOCKS {
                while engine.has_room() {
                    let Some(block) = order.next() else { break };
                    let at = block as usize * BLOCK;
                    let mut buffer = file.buffer(BLOCK).unwrap();
                    buffer.copy_from_slice(&content[at..at + BLOCK]);
                    engine.queue(Operation::write_all_at(&file, buffer, at as u64)).unwrap();
                }
                engine.submit().unwrap();
                let one = engine.next().unwrap().expect("some are under way");
                let completion = one.result.unwrap();
                assert_eq!((completion.bytes, one.buffer.len()), (BLOCK, BLOCK));
                assert_eq!(completion.times.is_some(), classes);
                orders.push(completion.order);
                done += 1;
            }
            assert!(engine.next().unwrap().is_none() && engine.is_empty());
            orders.sort_unstable();
            assert_eq!(
                orders,
                (0..BLOCKS).collect::<Vec<_>>(),
                "every operation has its own number"
            );
            assert!(std::fs::read(file.path()).unwrap() == content, "{backend}");

            for block in 0..64 {
                let buffer = file.buffer(BLOCK).unwrap();
                engine
                    .queue(Operation::read_exact_at(&file, buffer, block * BLOCK as u64))
                    .unwrap();
            }
            let first = BLOCKS;
            while let Some(one) = engine.next().unwrap() {
                let at = (one.id.number() - first) as usize * BLOCK;
                assert_eq!(one.result.unwrap().bytes, BLOCK);
                assert!(one.buffer[..] == content[at..at + BLOCK], "{backend}: block at {at}");
            }
        }
    }
}

#[watched_test]
fn run_reads_the_same_bytes_as_queue_and_next() {
    let folder = folder();
    let content = pattern(10 * 4096 + 512);
    for backend in BACKENDS {
        for direct in [false, true] {
            let options = EngineOptions { backend, ..EngineOptions::default() };
            let Some(mut engine) = engine(options) else { continue };
            let file = file_with(&folder, "waited", &content, direct);
            // First with nothing in flight, and then behind others.
            for under_way in [0, 3] {
                for (at, bytes) in [(0, 4096), (4096, 8192), (9 * 4096, 8192), (20 * 4096, 4096)] {
                    for _ in 0..under_way {
                        let other = Operation::read_at(&file, file.buffer(4096).unwrap(), 0);
                        engine.queue(other).unwrap();
                    }
                    let expected = &content[at.min(content.len())..];
                    let expected = &expected[..bytes.min(expected.len())];
                    let done = engine.read_at(&file, file.buffer(bytes).unwrap(), at as u64);
                    assert_eq!(
                        (done.result.unwrap().bytes, done.buffer.len()),
                        (expected.len(), bytes)
                    );
                    assert!(done.buffer[..expected.len()] == *expected, "{backend}: at {at}");
                    let done = engine.read_exact_at(&file, done.buffer, at as u64);
                    let got = expected.len();
                    match done.result {
                        Ok(completion) => assert_eq!((completion.bytes, got), (bytes, bytes)),
                        Err(error) => assert_eq!(
                            error.kind(),
                            &ErrorKind::EndOfFile { wanted: bytes, got },
                            "{backend}"
                        ),
                    }
                    let mut others = 0;
                    while let Some(other) = engine.next().unwrap() {
                        assert_eq!(other.result.unwrap().bytes, 4096);
                        others += 1;
                    }
                    assert_eq!(others, under_way, "{backend}: those of others stay theirs");
                }
            }
            // Errors are returned as in any other call.
            let writer = DiskFile::options().write(true).open(file.path()).unwrap();
            let done = engine.read_at(&writer, writer.buffer(16).unwrap(), 0);
            let error = done.result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::NotOpenedFor { what: "reading" });
            let done = engine.read_at(&file, file.buffer(4096).unwrap(), u64::MAX - 4095);
            assert_eq!(done.result.unwrap_err().kind(), &ErrorKind::InvalidInput);
        }
    }
}

#[watched_test]
fn a_file_that_is_appended_to_grows_at_its_end() {
    let folder = folder();
    for (name, mut tested) in tested_engines() {
        let path = folder.path().join("log");
        std::fs::write(&path, b"begin ").unwrap();
        let file = DiskFile::options().append(true).open(&path).unwrap();
        for word in [b"one ", b"two "] {
            let buffer = AlignedBuf::copy_of(word, 1).unwrap();
            let done = tested.run(Operation::write_all_at(&file, buffer, 0));
            assert_eq!(done.result.unwrap().bytes, 4);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"begin one two ", "{name}");
    }
}

#[watched_test]
fn a_half_cached_range_is_read_whole() {
    let folder = folder();
    let content = pattern(256 << 10);
    for (name, mut tested) in tested_engines() {
        let file = file_with(&folder, "half", &content, false);
        tested.run(Operation::sync_all(&file)).result.unwrap();
        file.forget_cache().unwrap();
        // Some pages in the middle, and the read-ahead behind them.
        let buffer = file.buffer(4096).unwrap();
        tested.run(Operation::read_at(&file, buffer, 64 << 10)).result.unwrap();
        let buffer = file.buffer(content.len()).unwrap();
        let done = tested.run(Operation::read_exact_at(&file, buffer, 0));
        assert_eq!(done.result.unwrap().bytes, content.len());
        assert!(done.buffer[..] == content, "{name}");
    }
}

const BLOCK: usize = 4096;

#[watched_test]
fn several_engines_can_share_one_file() {
    let folder = folder();
    let content = pattern(64 * BLOCK);
    for backend in BACKENDS {
        let options = EngineOptions { backend, cached_first: false, ..EngineOptions::default() };
        for direct in [false, true] {
            let file = file_with(&folder, "several", &content, direct);
            // More than once: a file outlives its engines.
            for _ in 0..3 {
                let (Some(mut one), Some(mut other)) = (engine(options), engine(options)) else {
                    break;
                };
                let shared = SharedEngine::new(options).unwrap();
                for block in 0..64 {
                    let at = (block * BLOCK) as u64;
                    for engine in [&mut one, &mut other] {
                        let buffer = file.buffer(BLOCK).unwrap();
                        engine.queue(Operation::read_exact_at(&file, buffer, at)).unwrap();
                        engine.submit().unwrap();
                    }
                    let done = shared.read_exact_at(&file, file.buffer(BLOCK).unwrap(), at).wait();
                    assert_eq!(done.result.unwrap().bytes, BLOCK);
                    assert!(done.buffer[..] == content[block * BLOCK..][..BLOCK], "{backend}");
                }
                for engine in [&mut one, &mut other] {
                    let mut done = 0;
                    while let Some(read) = engine.next().unwrap() {
                        let at = read.id.number() as usize * BLOCK;
                        assert_eq!(read.result.unwrap().bytes, BLOCK);
                        assert!(read.buffer[..] == content[at..at + BLOCK], "{backend}");
                        done += 1;
                    }
                    assert_eq!(done, 64);
                }
            }
            // The file is not held: on Windows that would keep it from being removed.
            let path = file.path().to_owned();
            drop(file);
            std::fs::remove_file(&path).unwrap();
            assert!(!path.exists());
        }
    }
}

#[cfg(windows)]
#[watched_test]
fn overlapped_calls_are_classified_by_their_return() {
    let folder = folder();
    let options = EngineOptions {
        backend: BackendKind::Overlapped,
        classes: true,
        times: true,
        ..EngineOptions::default()
    };
    let Some(mut engine) = engine(options) else {
        panic!("every Windows has overlapped calls");
    };
    let file = file_with(&folder, "reported", &pattern(64 * BLOCK), false);
    for block in 0..64 {
        let buffer = file.buffer(BLOCK).unwrap();
        engine.queue(Operation::read_exact_at(&file, buffer, block * BLOCK as u64)).unwrap();
    }
    engine.queue(Operation::sync_all(&file)).unwrap();
    engine.submit().unwrap();
    while let Some(done) = engine.next().unwrap() {
        let completion = done.result.unwrap();
        let class = completion.class.expect("Windows tells of every call");
        if done.id.number() == 64 {
            assert_eq!(class, Class::Worker, "no call of the kernel's syncs later");
        } else if is_wine() {
            // Wine does the work in the call, and reports it as pending.
            assert_eq!(class, Class::PendingButDone);
            assert!(completion.times.unwrap().in_call.is_some());
        } else {
            assert_ne!(class, Class::Worker);
        }
    }
    if is_wine() {
        skipped(Need::Windows, "the other classes: Wine has no others");
    }
}

#[watched_test]
fn exposing_old_disk_contents_works_or_is_permission_denied() {
    let folder = folder();
    let path = folder.path().join("exposed");
    let options = DiskFile::options().read(true).write(true).create(true);
    let opened = options.expose_old_disk_contents(true).preallocate(1 << 20).open(&path);
    match opened {
        Ok(file) => assert_eq!(file.len().unwrap(), 1 << 20),
        Err(error) => {
            let is_windows = cfg!(windows);
            assert!(is_windows && *error.kind() == ErrorKind::PermissionDenied, "{error}");
            skipped(Need::Windows, "this user may not have room taken for written");
        }
    }
    if is_wine() {
        skipped(Need::Windows, "what the room holds: SetFileValidData of Wine does nothing");
    }
}
