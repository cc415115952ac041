//! Errors of a disk: full, failing, read-only. Each test mounts its own.

use pipewright_disk::{DiskFile, Done, ErrorKind, Operation};
use pipewright_test_macros::isolated_test;
use pipewright_tests::failing::{self, GOOD_BYTES};
use pipewright_tests::{mounts, watchdog};

use super::{folder, pattern, tested_engines};

const MIB: usize = 1 << 20;

#[isolated_test]
fn a_full_disk_reports_the_bytes_that_fitted() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    let small = match mounts::loop_mount(folder.path(), "ext4", 8 * MIB as u64, "rw") {
        Ok(small) => small,
        Err(lack) => return lack.skip(),
    };
    let free_blocks = || rustix::fs::statvfs(small.path()).unwrap().f_bfree;
    let at_first = free_blocks();
    let content = pattern(16 * MIB);
    for (name, mut tested) in tested_engines() {
        for direct in [false, true] {
            let path = small.path().join("fills");
            let options = DiskFile::options().write(true).create(true).direct(direct);
            let file = options.open(&path).unwrap();
            let mut buffer = file.buffer(16 * MIB).unwrap();
            buffer.copy_from_slice(&content);
            let done = tested.run(Operation::write_all_at(&file, buffer, 0));
            let error = done.result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::NoSpace, "{name}: {error}");
            let fitted = error.bytes();
            // A direct write finds room for all of it first, or fails as a whole.
            assert!((fitted > 0 || direct) && fitted < 8 * MIB, "{name}: {fitted}");
            assert!(done.buffer[..] == content);
            let there = std::fs::read(&path).unwrap();
            assert!(there[..fitted] == done.buffer[..fitted], "{name}");
            assert!(there.len() == fitted || direct);
            let room = tested.run(Operation::preallocate(&file, 0, 16 * MIB as u64));
            assert_eq!(room.result.as_ref().unwrap_err().kind(), &ErrorKind::NoSpace);
            std::fs::remove_file(&path).unwrap();
            // Another thread may close its copy of the file later, and ext4 uses the room again only once its journal
            // has the removal.
            drop((file, done.file, room));
            watchdog::until("most of the room is free again", || {
                rustix::fs::syncfs(std::fs::File::open(small.path()).unwrap()).unwrap();
                free_blocks() > at_first / 2
            });
        }
    }
}

#[isolated_test]
fn a_failed_sync_is_never_retried_to_success() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    // A failing disk is slow: each backend once, and plain calls on the caller.
    let is_wanted = |name: &str| name.ends_with("false") || name == "threads, cached first: true";
    let tested_engines = tested_engines().into_iter().filter(|(name, _)| is_wanted(name));
    for (name, mut tested) in tested_engines {
        // A disk smaller than its stated size: an image in a tmpfs that is too small.
        let memory =
            mounts::mount(folder.path(), "memory", &["-t", "tmpfs", "-o", "size=12m", "none"]);
        let memory = memory.unwrap();
        let disk = match mounts::loop_mount(memory.path(), "ext2", 64 * MIB as u64, "rw") {
            Ok(disk) => disk,
            Err(lack) => return lack.skip(),
        };
        let path = disk.path().join("lost");
        let options = DiskFile::options().read(true).write(true).create(true);
        let file = options.open(&path).unwrap();
        let buffer = file.buffer(32 * MIB).unwrap();
        let done = tested.run(Operation::write_all_at(&file, buffer, 0));
        assert_eq!(done.result.unwrap().bytes, 32 * MIB, "it went into the cache");
        let error = tested.run(Operation::sync_all(&file)).result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Device | ErrorKind::NoSpace), "{name}: {error}");
        // The kernel has reported the error once, and would report success now.
        print_sync_error_of_another_handle(&path);
        assert!(file.is_poisoned());
        for operation in [
            Operation::sync_all(&file),
            Operation::sync_data(&file),
            Operation::write_at(&file, file.buffer(1).unwrap(), 0),
        ] {
            let error = tested.run(operation).result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Poisoned, "{name}");
        }
        // The bytes that are left can be read.
        tested.run(Operation::read_at(&file, file.buffer(4096).unwrap(), 0)).result.unwrap();
        drop((file, disk, memory));
    }
}

#[isolated_test]
fn a_sync_that_failed_once_with_any_error_is_neither_repeated_nor_forgotten() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    for errno in [libc::EAGAIN, libc::EINTR, libc::EINVAL, libc::EOPNOTSUPP, libc::ECANCELED] {
        for (name, mut tested) in tested_engines() {
            if errno == libc::ECANCELED && name.contains("uring") {
                // There the number means that the kernel has not run the sync.
                continue;
            }
            // The filesystem accepts every sync after the first: a repeated one would succeed.
            let (mounted, path) = match failing::mount_failing_with(folder.path(), errno) {
                Ok(mounted) => mounted,
                Err(lack) => return lack.skip(),
            };
            let file = DiskFile::options().read(true).write(true).open(&path).unwrap();
            let name = format!("{name}, {}", std::io::Error::from_raw_os_error(errno));
            let synced = tested.run(Operation::sync_all(&file)).result;
            assert_eq!(synced.unwrap_err().raw_os_error(), Some(errno), "{name}");
            assert!(file.is_poisoned(), "{name}");
            let error = tested.run(Operation::sync_data(&file)).result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Poisoned, "{name}");
            drop((file, mounted));
        }
    }
}

#[isolated_test]
fn a_failing_disk_reports_the_bytes_already_written() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    for (name, mut tested) in tested_engines() {
        // One for each: its first sync fails.
        let (mounted, path) = match failing::mount_failing(folder.path()) {
            Ok(mounted) => mounted,
            Err(lack) => return lack.skip(),
        };
        for direct in [false, true] {
            let options = DiskFile::options().read(true).write(true).direct(direct);
            let file = options.open(&path).unwrap();
            let name = format!("{name}, direct: {direct}");
            let check = |done: Done, doing: &str| {
                let error = done.result.unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::Device, "{name}: {error}");
                assert_eq!((error.bytes(), error.raw_os_error()), (GOOD_BYTES, Some(5)), "{name}");
                let words = format!(
                    "cannot {doing} {path:?} after {GOOD_BYTES} bytes: input/output error (os error 5)"
                );
                assert_eq!(error.to_string(), words);
                done.buffer
            };
            let content = pattern(2 * GOOD_BYTES);
            let mut buffer = file.buffer(content.len()).unwrap();
            buffer.copy_from_slice(&content);
            let done = tested.run(Operation::write_all_at(&file, buffer, 0));
            let mut buffer = check(done, "write to");
            assert!(buffer[..] == content, "{name}: to be written to a better place");
            buffer.fill(0);
            let done = tested.run(Operation::read_exact_at(&file, buffer, 0));
            let buffer = check(done, "read");
            assert!(buffer[..GOOD_BYTES] == content[..GOOD_BYTES], "{name}");
            // One call returns the bytes, and the next the error: neither hides the other.
            let done = tested.run(Operation::read_at(&file, buffer, 0));
            assert_eq!(done.result.unwrap().bytes, GOOD_BYTES, "{name}");
            let done = tested.run(Operation::read_at(&file, done.buffer, GOOD_BYTES as u64));
            assert_eq!(done.result.unwrap_err().kind(), &ErrorKind::Device, "{name}");
            assert_eq!(done.buffer.len(), 2 * GOOD_BYTES);
            if direct {
                continue;
            }
            let error = tested.run(Operation::sync_data(&file)).result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Device, "{name}: {error}");
            print_sync_error_of_another_handle(&path);
            let error = tested.run(Operation::sync_data(&file)).result.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Poisoned, "{name}: {error}");
        }
        drop(mounted);
    }
}

/// Prints the error, if any, of a sync by another handle. The kernel usually reports success there, which is the
/// reason for the rule; so nothing is asserted.
fn print_sync_error_of_another_handle(path: &std::path::Path) {
    let other = std::fs::File::open(path).unwrap();
    if let Err(error) = other.sync_all() {
        eprintln!("another handle's sync returned: {error}");
    }
}

#[isolated_test]
fn a_read_only_filesystem_is_its_own_error() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    let words = ["-t", "tmpfs", "-o", "ro", "none"];
    let fixed = mounts::mount(folder.path(), "fixed", &words).unwrap();
    let options = DiskFile::options().write(true).create(true);
    let error = options.open(fixed.path().join("new")).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::ReadOnly);
    assert!(error.to_string().ends_with("the filesystem is read-only (os error 30)"), "{error}");
}
