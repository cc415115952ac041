//! Objects as both sides see them, and objects that are refused.

use super::*;

const BYTES: usize = 64 << 10;
const OPTIONS: ShmOptions = ShmOptions { bytes: BYTES, prefault: true };

/// Returns an object, unless this build or machine has none.
fn written() -> Option<Written> {
    match Written::create(OPTIONS) {
        Ok(written) => Some(written),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            crate::base::skipped::skipped(crate::base::skipped::Need::SharedMemory, error);
            None
        }
    }
}

#[test]
fn reader_sees_written_data() {
    let Some(mut ours) = written() else { return };
    let theirs = Seen::open(ours.handle(), OPTIONS).unwrap();
    assert_eq!((ours.bytes(), theirs.bytes()), (BYTES, BYTES));
    for (at, byte) in ours.data().iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    ours.publish(3, 7);
    assert_eq!((theirs.word(3), theirs.word(2), theirs.word(WORDS)), (7, 0, 0));
    let lengths = (0..140).map(|count| (count * 3, count));
    let edges =
        [(0, BYTES), (1, 0), (7, 4097), (9, 1023), (BYTES - 1, 1), (BYTES - 17, 17), (BYTES, 0)];
    for (from, count) in lengths.chain(edges) {
        let expected: Vec<u8> = (from..from + count).map(|at| (at % 251) as u8).collect();
        let mut bytes = vec![0; count];
        theirs.copy_to(from, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "{from} {count}");
        let mut buffer = b"before".to_vec();
        theirs.append_to(from, count, &mut buffer).unwrap();
        assert_eq!((&buffer[..6], &buffer[6..]), (&b"before"[..], &expected[..]));
    }
    for (from, blocks) in
        [(0, BYTES / BLOCK_BYTES), (8, 0), (1, 1), (BYTES - BLOCK_BYTES, 1), (37, 9)]
    {
        let expected: Vec<u8> =
            (from..from + blocks * BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
        let append = |bytes: Vec<u8>, block: &[u8; BLOCK_BYTES]| [&bytes[..], block].concat();
        let bytes = theirs.fold_blocks(from, blocks * BLOCK_BYTES, Vec::new(), append).unwrap();
        assert_eq!(bytes, expected, "{from} {blocks}");
    }
    let words: Vec<u8> = theirs.words(8, 16).unwrap().flat_map(u64::to_ne_bytes).collect();
    assert_eq!(words, (8..24).collect::<Vec<u8>>());
    assert_eq!(theirs.numbers(0).unwrap()[1].to_ne_bytes(), [8, 9, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn ranges_outside_the_data_are_refused() {
    let Some(ours) = written() else { return };
    let theirs = Seen::open(ours.handle(), OPTIONS).unwrap();
    for (from, count) in [(BYTES, 1), (BYTES + 1, 0), (usize::MAX, 2), (0, BYTES + 1)] {
        assert!(theirs.append_to(from, count, &mut Vec::new()).is_err(), "{from} {count}");
    }
    assert!(theirs.copy_to(BYTES - 1, &mut [0; 2]).is_err());
    assert!(theirs.words(4, 8).is_err() && theirs.words(0, 12).is_err());
    assert!(theirs.numbers(BYTES - 24).is_err());
    for (from, count) in [(BYTES, BLOCK_BYTES), (BYTES - 63, 64), (0, 63), (usize::MAX - 1, 64)] {
        let looked = theirs.fold_blocks(from, count, (), |(), block| panic!("{block:?}"));
        assert_eq!(looked.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{from} {count}");
    }
}

/// A load of 64 bits that writes would fault in memory that is mapped for reading.
#[test]
fn a_processor_of_32_bits_has_no_shared_memory() {
    let error = size_of_object(BYTES, 32).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
    assert_eq!(size_of_object(BYTES, 64).unwrap(), CONTROL_BYTES + BYTES);
}

#[test]
fn invalid_sizes_are_refused() {
    for bytes in [0, 1, 4095, 4097, MOST_BYTES + 4096, usize::MAX] {
        let options = ShmOptions { bytes, prefault: false };
        assert_eq!(Written::create(options).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[cfg(all(target_os = "linux", not(any(miri, pipewright_plain_memory))))]
mod linux {
    use std::fs::File;

    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use rustix::mm::ProtFlags;

    use super::super::mapping::Mapping;
    use super::*;

    /// Returns an object as a hostile peer would create it.
    fn object(size: u64, allocated: bool, seals: SealFlags) -> Handle {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(c"hostile", flags).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        if allocated {
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size).unwrap();
        }
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        Handle::from(fd)
    }

    #[test]
    fn hostile_objects_are_refused() {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let size = (CONTROL_BYTES + BYTES) as u64;
        let refused = |handle: Handle, words: &str| {
            let error = Seen::open(&handle, OPTIONS).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains(words), "{error}");
        };
        assert!(Seen::open(&object(size, true, seals), OPTIONS).is_ok());
        for seal in [SealFlags::SHRINK, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
            refused(object(size, true, seals.difference(seal)), "not sealed");
        }
        refused(object(size - 4096, true, seals), "its size is not");
        refused(object(size + 4096, true, seals), "its size is not");
        refused(object(size, false, seals), "holes");
        refused(Handle::from(File::open("/proc/self/exe").unwrap()), "not a sealable");
        refused(Handle::from(File::open("/dev/null").unwrap()), "not a sealable");
    }

    /// An object with one page missing inside and one behind the end, so that their number is right.
    #[test]
    fn pages_behind_the_end_do_not_stand_in_for_holes() {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let size = (CONTROL_BYTES + BYTES) as u64;
        let made = |missing: u64| {
            let handle = object(size, true, SealFlags::empty());
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if missing > 0 {
                rustix::fs::fallocate(&handle, hole, size - missing, missing).unwrap();
            }
            // Behind the end.
            let keep = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&handle, keep, size, missing.max(4096)).unwrap();
            rustix::fs::fcntl_add_seals(&handle, seals).unwrap();
            handle
        };
        let blocks = |handle: &Handle| rustix::fs::fstat(handle).unwrap().st_blocks as u64 * 512;
        for missing in [4096, BYTES as u64] {
            let handle = made(missing);
            assert!(blocks(&handle) >= size, "it looks whole");
            let error = Seen::open(&handle, OPTIONS).unwrap_err();
            assert!(error.to_string().contains("holes"), "{error}");
            // Nobody can fill what was truncated.
            let keep = FallocateFlags::KEEP_SIZE;
            assert!(rustix::fs::fallocate(&handle, keep, size, 4096).is_err());
        }
        let whole = made(0);
        assert!(Seen::open(&whole, OPTIONS).is_ok());
        assert_eq!(blocks(&whole), size);
    }

    #[test]
    fn fork_sees_no_data_and_harms_nothing() {
        use crate::base::generation::tests::in_a_fork;
        let Some(mut ours) = written() else { return };
        let theirs = Seen::open(ours.handle(), OPTIONS).unwrap();
        ours.data().fill(7);
        ours.publish(3, 7);
        let addresses = [ours.mapping.start(), theirs.mapping.start()];
        let (mut in_child, theirs_in_child) = (Some(ours), Some(theirs));
        assert!(in_a_fork(|| {
            let (Some(mut ours), Some(theirs)) = (in_child.take(), theirs_in_child.as_ref()) else {
                return false;
            };
            // Mappings of other code at the addresses that the parent uses.
            let page = 4096;
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED_NOREPLACE;
            for address in addresses {
                // SAFETY: nothing is mapped there, or the call fails.
                let made =
                    unsafe { rustix::mm::mmap_anonymous(address.cast(), page, rights, flags) };
                if made != Ok(address.cast()) {
                    return false;
                }
            }
            ours.publish(0, 9);
            ours.announce(0, 9);
            let nothing = ours.data().is_empty() && ours.get(0, 1).is_none();
            let nor_theirs = theirs.word(0) == 0 && theirs.copy_to(0, &mut [0; 1]).is_err();
            drop(ours);
            // SAFETY: mapped above, and still mapped.
            let untouched = addresses.iter().all(|address| unsafe { address.read() } == 0);
            nothing && nor_theirs && untouched
        }));
        let (ours, theirs) = (in_child.unwrap(), theirs_in_child.unwrap());
        assert_eq!((ours.get(0, 1), theirs.word(3)), (Some(&[7][..]), 7));
    }

    #[test]
    fn others_cannot_write_or_shrink_it() {
        let Some(ours) = written() else { return };
        let handle = ours.handle();
        let size = CONTROL_BYTES + BYTES;
        assert!(Mapping::of(handle, size, ProtFlags::READ | ProtFlags::WRITE).is_err());
        assert!(rustix::io::write(handle, b"x").is_err());
        assert!(rustix::fs::ftruncate(handle, 0).is_err());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(handle, hole, 0, 4096).is_err());
        assert!(rustix::fs::fcntl_add_seals(handle, SealFlags::WRITE).is_err());
    }

    #[test]
    fn changing_data_are_read_as_a_mixture_and_copies_are_stable() {
        let Some(mut ours) = written() else { return };
        let theirs = Seen::open(ours.handle(), OPTIONS).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2_000 {
                    ours.data().fill(if round % 2 == 0 { 0xAA } else { 0x55 });
                }
                done.store(true, Ordering::Release);
            });
            let mut copied = Vec::new();
            while !done.load(Ordering::Acquire) {
                copied.clear();
                theirs.append_to(0, BYTES, &mut copied).unwrap();
                assert!(copied.iter().all(|byte| [0, 0xAA, 0x55].contains(byte)));
                let look = |blocks, block: &[u8; BLOCK_BYTES]| {
                    let before = std::hint::black_box(*block);
                    assert!(block.iter().all(|byte| [0, 0xAA, 0x55].contains(byte)));
                    assert_eq!(*std::hint::black_box(block), before);
                    blocks + 1
                };
                assert_eq!(theirs.fold_blocks(8, BYTES - 64, 0, look).unwrap(), BYTES / 64 - 1);
            }
        });
    }
}

#[cfg(windows)]
mod windows {
    use std::fs::OpenOptions;
    use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
    use std::ptr;

    use windows_sys::Win32::Foundation::{DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE};
    use windows_sys::Win32::System::Memory::{
        CreateFileMappingW, FILE_MAP_ALL_ACCESS, FILE_MAP_WRITE, MapViewOfFile, PAGE_READWRITE,
        SEC_COMMIT, SEC_RESERVE,
    };
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    use super::*;

    /// Returns an object as a hostile peer would create it.
    fn object(file: HANDLE, size: usize, how: u32) -> Handle {
        let (name, how) = (ptr::null(), PAGE_READWRITE | how);
        // SAFETY: an open file, or none; a size; no name.
        let made = unsafe { CreateFileMappingW(file, ptr::null(), how, 0, size as u32, name) };
        assert!(!made.is_null(), "{}", io::Error::last_os_error());
        // SAFETY: created above, and owned by nobody else.
        Handle::from(unsafe { OwnedHandle::from_raw_handle(made) })
    }

    #[test]
    fn hostile_objects_are_refused() {
        let size = CONTROL_BYTES + BYTES;
        let refused = |handle: Handle, words: &str| {
            let error = Seen::open(&handle, OPTIONS).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains(words), "{error}");
        };
        let nothing = INVALID_HANDLE_VALUE;
        assert!(Seen::open(&object(nothing, size, SEC_COMMIT), OPTIONS).is_ok());
        refused(object(nothing, size - 4096, SEC_COMMIT), "its size is not");
        refused(object(nothing, size + 4096, SEC_COMMIT), "its size is not");
        refused(object(nothing, size, SEC_RESERVE), "not committed");
        let path = std::env::temp_dir().join(format!("pipewright-{}-section", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap();
        refused(object(file.as_raw_handle(), size, 0), "it is a file mapping");
        refused(Handle::from(file), "it is not a section");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn others_cannot_write_it() {
        let ours = written().unwrap();
        let handle = ours.handle().as_raw_handle();
        for rights in [FILE_MAP_WRITE, FILE_MAP_ALL_ACCESS] {
            // SAFETY: an open handle; a new view at an unused address.
            let view = unsafe { MapViewOfFile(handle, rights, 0, 0, 0) };
            assert!(view.Value.is_null(), "{rights:#x}");
            let mut copy = ptr::null_mut();
            // SAFETY: no arguments; a pseudo handle, which is not closed.
            let own = unsafe { GetCurrentProcess() };
            // SAFETY: an open handle and a live place.
            let copied = unsafe { DuplicateHandle(own, handle, own, &raw mut copy, rights, 0, 0) };
            assert_eq!(copied, 0, "a copy may do more than what it is a copy of: {rights:#x}");
        }
    }
}
