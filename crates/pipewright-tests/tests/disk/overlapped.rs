//! Overlapped operations: their classes where Wine shows them, and one file on several engines.

#[cfg(windows)]
use pipewright_disk::{BackendKind, Class};
use pipewright_disk::{DiskFile, EngineOptions, ErrorKind, Operation, SharedEngine};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, is_wine, skipped};

use super::{BACKENDS, engine, file_with, folder, pattern};

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
