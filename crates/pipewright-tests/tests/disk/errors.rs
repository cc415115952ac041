//! Errors: each failure is typed, returns its buffer, and loses no data silently.

#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;

use pipewright_disk::{AlignedBuf, DiskFile, ErrorKind, Misaligned, Operation, Part};

use super::{file_with, folder, pattern, tested_engines};

#[watched_test]
fn a_file_that_cannot_be_opened_is_an_error_with_the_reason() {
    let folder = folder();
    let path = folder.path().join("there");
    std::fs::write(&path, b"x").unwrap();
    let read = DiskFile::options().read(true);
    let opened = read.open(folder.path().join("missing"));
    assert_eq!(opened.unwrap_err().kind(), &ErrorKind::NotFound);
    let new = DiskFile::options().write(true).create_new(true);
    assert_eq!(new.open(&path).unwrap_err().kind(), &ErrorKind::AlreadyExists);
    for options in [&read, &DiskFile::options().write(true), &read.clone().direct(true)] {
        let error = options.open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::IsDirectory);
        assert_eq!(error.path(), Some(folder.path()));
        let words = error.to_string();
        assert!(
            words.starts_with("cannot open \"") && words.ends_with(": is a directory"),
            "{words}"
        );
    }
    let error = DiskFile::options().open(&path).unwrap_err();
    assert_eq!(
        error.kind(),
        &ErrorKind::InvalidInput,
        "neither for reading nor for writing: {error}"
    );
    let error = read.preallocate(4096).open(&path).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotOpenedFor { what: "writing" });
}

#[cfg(target_os = "linux")]
#[watched_test]
fn files_without_offsets_are_refused_at_once() {
    let folder = folder();
    let path = folder.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    // Its open would wait for a writer.
    let error = DiskFile::options().read(true).open(&path).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotSeekable, "{error}");
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = DiskFile::options().read(true).open(&socket).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NotSeekable, "{error}");
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_sync_that_the_file_does_not_support_leaves_it_usable() {
    for (name, mut tested) in tested_engines() {
        let file = DiskFile::options().write(true).open("/dev/null").unwrap();
        for _ in 0..2 {
            let synced = tested.run(Operation::sync_all(&file)).result.unwrap_err();
            assert_eq!(synced.kind(), &ErrorKind::InvalidInput, "{name}: {synced}");
            assert!(!file.is_poisoned(), "{name}");
            let buffer = AlignedBuf::copy_of(b"x", 1).unwrap();
            let written = tested.run(Operation::write_all_at(&file, buffer, 0)).result;
            assert_eq!(written.unwrap().bytes, 1, "{name}");
        }
    }
}

#[watched_test]
fn an_operation_without_access_returns_its_buffer() {
    let folder = folder();
    for (name, mut tested) in tested_engines() {
        let path = folder.path().join("one-way");
        std::fs::write(&path, pattern(1000)).unwrap();
        let reader = DiskFile::options().read(true).open(&path).unwrap();
        let done = tested.run(Operation::write_at(&reader, reader.buffer(10).unwrap(), 0));
        assert_eq!(done.buffer.len(), 10, "{name}");
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotOpenedFor { what: "writing" });
        let done = tested.run(Operation::preallocate(&reader, 0, 4096));
        assert_eq!(done.result.unwrap_err().kind(), error.kind());
        let writer = DiskFile::options().write(true).open(&path).unwrap();
        let done = tested.run(Operation::read_at(&writer, done.buffer, 0));
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotOpenedFor { what: "reading" });
        // Beyond the length of any file.
        let done =
            tested.run(Operation::read_at(&reader, reader.buffer(10).unwrap(), u64::MAX - 4));
        assert_eq!(done.result.unwrap_err().kind(), &ErrorKind::InvalidInput);
        assert!(std::fs::read(&path).unwrap() == pattern(1000));
    }
}

#[watched_test]
fn a_misaligned_operation_names_the_required_and_the_given_alignment() {
    let folder = folder();
    for (name, mut tested) in tested_engines() {
        let file = file_with(&folder, "aligned", &pattern(64 << 10), true);
        let alignment = file.alignment();
        if alignment.offset == 1 {
            return pipewright_tests::skip::skipped(
                pipewright_tests::skip::Need::Storage,
                "nothing has to be aligned here",
            );
        }
        let (needed, reported) = (alignment.offset, alignment.reported);
        let mut misaligned = |bytes: usize, offset: u64| {
            let buffer = file.buffer(bytes).unwrap();
            let done = tested.run(Operation::read_at(&file, buffer, offset));
            assert_eq!(done.buffer.len(), bytes, "{name}");
            done.result.unwrap_err().kind().clone()
        };
        let expected =
            |part, given| ErrorKind::Misaligned(Misaligned { part, needed, given, reported });
        assert_eq!(misaligned(needed, 1), expected(Part::Offset, 1));
        assert_eq!(misaligned(needed - 1, 0), expected(Part::Length, needed as u64 - 1));
        // One byte is at a multiple of 1; that of more than 1 is a matter of luck.
        let odd = AlignedBuf::zeroed(needed, 1).unwrap();
        let is_odd = odd.as_ptr() as usize % alignment.memory != 0;
        let result = tested.run(Operation::read_at(&file, odd, 0)).result;
        match result {
            Ok(completion) => assert!(!is_odd && completion.bytes == needed),
            Err(error) => assert!(matches!(
                error.kind(),
                ErrorKind::Misaligned(Misaligned { part: Part::Memory, .. })
            )),
        }
    }
}

#[watched_test]
fn reads_of_a_truncated_or_removed_file_end_at_its_end() {
    let folder = folder();
    for (name, mut tested) in tested_engines() {
        let file = file_with(&folder, "cut", &pattern(100_000), false);
        file.set_len(50_000).unwrap();
        let done = tested.run(Operation::read_exact_at(&file, file.buffer(100_000).unwrap(), 0));
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::EndOfFile { wanted: 100_000, got: 50_000 }, "{name}");
        assert_eq!(error.bytes(), 50_000);
        assert!(done.buffer[..50_000] == pattern(100_000)[..50_000]);
        let done = tested.run(Operation::read_at(&file, done.buffer, 50_000));
        assert_eq!(done.result.unwrap().bytes, 0, "the end of a file is no error");
        if cfg!(unix) {
            // The file has lost only its name.
            std::fs::remove_file(file.path()).unwrap();
            let done = tested.run(Operation::write_all_at(&file, done.buffer, 0));
            assert_eq!(done.result.unwrap().bytes, 100_000);
            tested.run(Operation::sync_all(&file)).result.unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_full_disk_gives_the_buffer_back() {
    for (name, mut tested) in tested_engines() {
        // A device that is always full.
        let file = DiskFile::options().write(true).open("/dev/full").unwrap();
        let buffer = AlignedBuf::copy_of(b"precious", 1).unwrap();
        let done = tested.run(Operation::write_all_at(&file, buffer, 0));
        assert_eq!(&done.buffer[..], b"precious");
        let error = done.result.unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (&ErrorKind::NoSpace, Some(28)), "{name}");
        assert_eq!(
            error.to_string(),
            "cannot write to \"/dev/full\": no space left on device (os error 28)"
        );
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
    }
}

#[watched_test]
fn preallocating_zero_bytes_succeeds() {
    let folder = folder();
    for (name, mut tested) in tested_engines() {
        let file = file_with(&folder, "nothing", &[], false);
        let done = tested.run(Operation::preallocate(&file, 0, 0));
        assert_eq!(done.result.unwrap().bytes, 0, "{name}");
        assert_eq!(file.len().unwrap(), 0, "{name}");
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_file_size_limit_reports_the_bytes_already_written() {
    // Otherwise the signal ends the process (setrlimit(2)). SAFETY: takes a signal and SIG_IGN.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: 100_000 };
    let folder = folder();
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    for (name, mut tested) in tested_engines() {
        let file = file_with(&folder, "limited", &[], false);
        let mut buffer = file.buffer(300_000).unwrap();
        buffer.copy_from_slice(&pattern(300_000));
        let done = tested.run(Operation::write_all_at(&file, buffer, 0));
        assert!(done.buffer[..] == pattern(300_000));
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::TooLarge, "{name}: {error}");
        assert_eq!(error.bytes(), 100_000);
        assert!(error.to_string().contains(" after 100000 bytes: "), "{error}");
        assert!(std::fs::read(file.path()).unwrap() == pattern(300_000)[..100_000]);
    }
}
