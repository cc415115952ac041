//! The diagnosis: its verdicts on files of known behaviour, and that it leaves nothing behind.

#[cfg(windows)]
use pipewright_disk::Unjudged;
use pipewright_disk::diagnosis::{
    DiagnoseOptions, Reason, Test, TestOutcome, Verdict, Work, diagnose,
};
use pipewright_disk::{BackendKind, Class, ErrorKind};
#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, skipped};

use super::{folder, pattern};

const FEW: DiagnoseOptions = DiagnoseOptions {
    requests: 60,
    block_bytes: 16 << 10,
    pattern: pipewright_disk::diagnosis::Pattern::Random,
    synchronous: None,
    direct: None,
    writes: false,
    write_existing: false,
    backend: BackendKind::Auto,
};

#[watched_test]
fn a_file_is_read_and_never_written_to() {
    let folder = folder();
    let path = folder.path().join("data");
    let content = pattern(1 << 20);
    std::fs::write(&path, &content).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let report = diagnose(&path, &DiagnoseOptions { writes: true, ..FEW }).unwrap();
    assert_eq!(report.tests.len(), 13);
    for test in &report.tests {
        match &test.outcome {
            TestOutcome::Measured(measured) => {
                assert_eq!(measured.evidence.requests, 60);
                assert!(measured.completed >= measured.queued, "{test}");
                assert!((0.0..=1.0).contains(&measured.free_share()), "{test}");
                let is_sync = !test.test.asynchronous;
                assert_eq!(measured.verdict == Verdict::Synchronous, is_sync, "{test}");
                if test.test.work != Work::Sync {
                    assert_eq!(measured.bytes, 60 * (16 << 10), "{test}");
                }
            }
            TestOutcome::NotPossible(reason) => {
                skipped(Need::Storage, format_args!("{}: {reason}", test.test));
            }
            TestOutcome::Failed(reason) => panic!("{}: {reason}", test.test),
        }
    }
    assert!(std::fs::read(&path).unwrap() == content);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "its own files are gone");
}

#[watched_test]
fn a_file_that_may_be_overwritten_is_unchanged() {
    let folder = folder();
    let path = folder.path().join("data");
    // Not a multiple of the block, and fewer blocks than requests.
    let content = pattern(40 * (16 << 10) + 100);
    std::fs::write(&path, &content).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let open = || std::fs::File::options().write(true).open(&path).unwrap();
    open().set_modified(long_ago).unwrap();
    let options = DiagnoseOptions { write_existing: true, ..FEW };
    let report = diagnose(&path, &options).unwrap();
    for direct in [false, true] {
        let test = Test { asynchronous: true, direct, work: Work::Overwrite };
        let measured = report.measured(test).expect("it was made");
        assert_eq!(measured.bytes, 60 * (16 << 10));
    }
    assert!(std::fs::read(&path).unwrap() == content);
    assert_ne!(
        std::fs::metadata(&path).unwrap().modified().unwrap(),
        long_ago,
        "it was written to"
    );
    // A write beyond its last block would make it longer.
    open().set_len(1000).unwrap();
    let report = diagnose(&path, &options).unwrap();
    let test = Test { asynchronous: true, direct: false, work: Work::Overwrite };
    let outcome = &report.tests.iter().find(|it| it.test == test).unwrap().outcome;
    let TestOutcome::Failed(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.ends_with("the file ends after 1000 of 16384 bytes"), "{reason}");
    assert!(std::fs::read(&path).unwrap() == content[..1000]);
}

#[watched_test]
fn a_path_that_cannot_be_diagnosed_is_an_error_with_the_reason() {
    let folder = folder();
    let error = diagnose(folder.path().join("missing"), &FEW).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotFound);
    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    let error = diagnose(&empty, &FEW).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Empty);
    assert!(error.to_string().ends_with("empty\": the file is empty"), "{error}");
    for options in
        [DiagnoseOptions { requests: 0, ..FEW }, DiagnoseOptions { block_bytes: 0, ..FEW }]
    {
        let error = diagnose(folder.path(), &options).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    }
    if pipewright_os::host::host_info::free_memory_bytes().is_some() {
        // No test of it runs, because it would fill the disk.
        let options = DiagnoseOptions { requests: 30_000, block_bytes: 1 << 30, ..FEW };
        let error = diagnose(folder.path(), &options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made");
}

#[cfg(target_os = "linux")]
#[watched_test]
fn if_no_test_can_run_the_first_error_is_returned() {
    for endless in ["/dev/null", "/dev/zero", "/dev/full"] {
        let error = diagnose(endless, &FEW).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotSeekable, "{error}");
    }
    // A file of length 0, even if it has bytes to read.
    let error = diagnose("/proc/self/status", &FEW).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Empty, "{error}");
    // No file can be created there.
    let error = diagnose("/proc", &FEW).unwrap_err();
    assert!(error.to_string().starts_with("cannot create \"/proc/.pipewright-disk-"), "{error}");
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_read_of_a_hole_is_distinct_from_a_cached_read() {
    let folder = folder();
    let path = folder.path().join("sparse");
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let report = diagnose(&path, &FEW).unwrap();
    let read = Test { asynchronous: true, direct: true, work: Work::Read };
    let measured = report.measured(read).expect("it was made");
    if measured.verdict != Verdict::Cached {
        return skipped(Need::Storage, format_args!("a hole is read by {}", measured.verdict));
    }
    assert_eq!(measured.findings[0].reason, Reason::NothingThere, "{:?}", measured.findings);
}

#[cfg(target_os = "linux")]
#[watched_test]
fn direct_reads_of_dirty_data_name_the_writeback_they_wait_for() {
    let folder = folder();
    let path = folder.path().join("fresh");
    // Large enough that the writeback of its first part does not cover all of it.
    std::fs::write(&path, vec![7; 32 << 20]).unwrap();
    let read = Test { asynchronous: true, direct: true, work: Work::Read };
    let report = diagnose(&path, &FEW).unwrap();
    let measured = report.measured(read).expect("it was made");
    let evidence = &measured.evidence;
    let is_judged = report.backend == Some(BackendKind::IoUring)
        && evidence.facts.nowait == Some(true)
        && evidence.facts.compressed != Some(true);
    if !is_judged || measured.verdict != Verdict::Workers {
        // Another process may have synced it in between.
        return skipped(Need::Luck, format_args!("no thread waited: {evidence:?}"));
    }
    assert!(evidence.unwritten_before.is_none_or(|bytes| bytes > 0), "{evidence:?}");
    if evidence.unwritten_before.is_some() {
        let finding = &measured.findings[0];
        assert_eq!(finding.reason, Reason::Unwritten);
        // The awaited data is in memory the second time.
        assert_ne!(finding.effect.expect("it was tried").verdict, Verdict::Workers, "{finding:?}");
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_disk_that_is_mounted_is_read_and_not_written_over() {
    let folder = folder();
    let mounted = pipewright_tests::mounts::private()
        .and_then(|()| pipewright_tests::mounts::loop_mount(folder.path(), "ext4", 32 << 20, "rw"));
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(lack) => return lack.skip(),
    };
    let device = rustix::fs::stat(mounted.path()).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let uevent = format!("/sys/dev/block/{major}:{minor}/uevent");
    let uevent = std::fs::read_to_string(uevent).unwrap();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap();
    let disk = std::path::Path::new("/dev").join(name);
    let report = diagnose(&disk, &DiagnoseOptions { write_existing: true, ..FEW }).unwrap();
    for direct in [true, false] {
        let outcome = |work| {
            let test = Test { asynchronous: true, direct, work };
            &report.tests.iter().find(|it| it.test == test).unwrap().outcome
        };
        assert!(matches!(outcome(Work::Read), TestOutcome::Measured(_)), "{report:?}");
        let TestOutcome::Failed(reason) = outcome(Work::Overwrite) else { panic!("{report:?}") };
        assert!(reason.ends_with("the disk is mounted, or part of another disk"), "{reason}");
    }
}

#[watched_test]
fn requests_of_an_odd_length_are_misaligned() {
    let folder = folder();
    let options = DiagnoseOptions { block_bytes: 1000, direct: Some(true), ..FEW };
    let report = diagnose(folder.path(), &options).unwrap();
    let read = Test { asynchronous: true, direct: true, work: Work::Read };
    let measured = report.measured(read).expect("it was made");
    if measured.evidence.misaligned.is_none() {
        return skipped(Need::Storage, "nothing has to be aligned here");
    }
    // Later calls of io_uring are refused, where it exists.
    let finding = measured.findings.iter().find(|finding| finding.reason == Reason::Misaligned);
    let finding = finding.expect("it is found");
    assert!(finding.evidence.contains("multiple of"), "{finding:?}");
}

#[watched_test]
fn work_of_the_engines_own_threads_is_reported_as_such() {
    let folder = folder();
    let options =
        DiagnoseOptions { backend: BackendKind::Threads, synchronous: Some(false), ..FEW };
    let report = diagnose(folder.path(), &options).unwrap();
    assert_eq!(report.backend, Some(BackendKind::Threads));
    let read = Test { asynchronous: true, direct: false, work: Work::Read };
    let measured = report.measured(read).unwrap();
    assert_eq!((measured.verdict, measured.evidence.count(Class::Worker)), (Verdict::Workers, 60));
}

#[cfg(windows)]
#[watched_test]
fn wine_is_not_taken_for_windows() {
    let folder = folder();
    let report = diagnose(folder.path(), &FEW).unwrap();
    if report.unjudged != Some(Unjudged::Imitation) {
        return skipped(Need::Wine, "this is no Wine");
    }
    assert_eq!(report.backend, Some(BackendKind::Overlapped));
    for test in report.tests.iter().filter(|test| test.test.asynchronous) {
        let TestOutcome::Measured(measured) = &test.outcome else { panic!("{test}") };
        assert_eq!(measured.verdict, Verdict::Unknown, "{test}");
        assert_eq!((measured.findings.len(), measured.evidence.known()), (0, 60), "{test}");
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_refused_io_uring_is_the_first_finding() {
    let folder = folder();
    pipewright_tests::kernel::refuse(&[libc::SYS_io_uring_setup], libc::EPERM);
    let report = diagnose(folder.path(), &FEW).unwrap();
    assert_eq!(report.unavailable_backends[0].backend, BackendKind::IoUring);
    let read = Test { asynchronous: true, direct: true, work: Work::Read };
    let finding = &report.measured(read).unwrap().findings[0];
    assert_eq!(finding.reason, Reason::RingRefused(report.unavailable_backends[0].reason));
    // Linux AIO still does direct reads.
    assert_eq!(report.backend, Some(BackendKind::Aio));
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn verdicts_match_filesystems_of_known_behaviour() {
    use pipewright_disk::diagnosis::Remedy;
    use pipewright_tests::mounts;

    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    if pipewright_tests::skip::is_forced_off("io_uring") {
        return skipped(Need::IoUring, "there is no io_uring in this build");
    }
    if super::has_one_processor() {
        return;
    }
    let of = |path: &std::path::Path, direct, work| {
        let report = diagnose(path, &FEW).unwrap();
        let test = Test { asynchronous: true, direct, work };
        let measured = report.measured(test).expect("it was made");
        (measured.verdict, measured.findings.first().map(|finding| finding.reason))
    };
    // The effect of the remedy, from a second run of the same test.
    let tried = |path: &std::path::Path, work, remedy| {
        let report = diagnose(path, &FEW).unwrap();
        let measured = report.measured(Test { asynchronous: true, direct: true, work });
        let finding = &measured.expect("it was made").findings[0];
        assert_eq!((finding.remedy, finding.tried), (remedy, None), "{work:?}");
        let effect = finding.effect.expect("it was tried");
        assert!((0.0..=1.0).contains(&effect.free_share), "{effect:?}");
        if remedy == Remedy::Aio {
            // It has no threads that could wait.
            assert_ne!(effect.verdict, Verdict::Workers, "{work:?}: {effect:?}");
        }
    };
    let words = ["-t", "tmpfs", "-o", "size=64m", "none"];
    let tmpfs = mounts::mount(folder.path(), "tmpfs", &words).unwrap();
    let nowait = (Verdict::Workers, Some(Reason::NoNowait));
    let tmpfs = [Work::Read, Work::Extend].map(|work| of(tmpfs.path(), false, work));
    // Before, io_uring tried every regular file without waiting, whatever its filesystem declared.
    let since_6_5 = pipewright_tests::skip::kernel() >= (6, 5);
    if since_6_5 {
        assert_eq!(tmpfs, [nowait, nowait]);
    } else {
        let read = (Verdict::Cached, Some(Reason::CacheHit));
        assert_eq!(tmpfs, [read, nowait]);
    }
    match mounts::loop_mount(folder.path(), "ext4", 64 << 20, "rw") {
        Err(lack) => lack.skip(),
        Ok(ext4) => {
            let read = of(ext4.path(), true, Work::Read);
            assert_eq!(read, (Verdict::Asynchronous, None));
            let extending = (Verdict::Workers, Some(Reason::Extending));
            assert_eq!(of(ext4.path(), true, Work::Extend), extending);
            let hole = (Verdict::Workers, Some(Reason::Hole));
            assert_eq!(of(ext4.path(), true, Work::Hole), hole);
            let buffered = (Verdict::Workers, Some(Reason::BufferedWrite));
            assert_eq!(of(ext4.path(), false, Work::Overwrite), buffered);
            let sync = (Verdict::Workers, Some(Reason::OperationKind));
            assert_eq!(of(ext4.path(), false, Work::Sync), sync);
            match mounts::overlay(folder.path(), ext4.path()) {
                Err(lack) => lack.skip(),
                Ok(overlay) if since_6_5 => {
                    tried(overlay.path(), Work::Read, Remedy::Aio);
                    tried(overlay.path(), Work::Overwrite, Remedy::Aio);
                }
                Ok(overlay) => {
                    let read = of(overlay.path(), true, Work::Read);
                    assert_eq!(read, (Verdict::Asynchronous, None));
                }
            }
        }
    }
    let encrypting = mounts::loop_mount_encrypting(folder.path(), 64 << 20);
    let secret = |ext4: &mounts::Mounted| {
        let secret = ext4.path().join("secret");
        mounts::encrypted_folder(&secret).map(|()| secret)
    };
    match encrypting.and_then(|ext4| Ok((secret(&ext4)?, ext4))) {
        Err(lack) => lack.skip(),
        Ok((secret, _ext4)) => {
            let encrypted = Some(Reason::Encryption);
            // It takes direct reads, and serves them from its cache where it need not wait.
            assert_eq!(of(&secret, true, Work::Read).1, encrypted);
            for work in [Work::Overwrite, Work::Extend, Work::Preallocated] {
                assert_eq!(of(&secret, true, work), (Verdict::Workers, encrypted), "{work:?}");
            }
        }
    }
    match mounts::loop_mount(folder.path(), "btrfs", 160 << 20, "rw") {
        Err(lack) => lack.skip(),
        Ok(btrfs) => {
            let copied = (Verdict::Workers, Some(Reason::CopyOnWrite));
            assert_eq!(of(btrfs.path(), true, Work::Overwrite), copied);
            tried(btrfs.path(), Work::Overwrite, Remedy::NoCopyOnWrite);
            // New files inherit the flag of the folder; compressible data is compressed.
            let packed = btrfs.path().join("packed");
            std::fs::create_dir(&packed).unwrap();
            match mounts::run("chattr", &["+c".as_ref(), packed.as_os_str()]) {
                Err(error) => skipped(Need::Program("chattr"), error),
                Ok(()) => {
                    let path = packed.join("data");
                    std::fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
                    std::fs::File::open(&path).unwrap().sync_all().unwrap();
                    let compressed = (Verdict::Workers, Some(Reason::Compression));
                    assert_eq!(of(&path, true, Work::Read), compressed);
                }
            }
        }
    }
}
