//! Classes of operations: each agrees with the kernel's own tracepoint, filesystem by filesystem.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pipewright_disk::{Access, BackendKind, Class, DiskFile, Engine, EngineOptions, Operation};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::kernel::Oracle;
use pipewright_tests::mounts::{
    Mounted, encrypted_folder, loop_mount, loop_mount_encrypting, mount, overlay, private, run,
};
use pipewright_tests::skip::{Lack, Need, counted, kernel, skipped};
use pipewright_tests::watchdog;

use super::{folder, pattern};

const OPERATIONS: usize = 200;
const BLOCK: usize = 4096;
/// A distance at which the kernel does not read ahead to the next operation.
const STRIDE: usize = 4 * BLOCK;
const MIB: u64 = 1 << 20;

/// The state of the file that an operation meets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CacheState {
    ReadCached,
    ReadCold,
    ReadDirect,
    Overwrite,
    Extend,
    OverwriteDirect,
    ExtendDirect,
    PreallocatedDirect,
    HoleDirect,
    Sync,
    Preallocate,
}

const CASES: [CacheState; 11] = [
    CacheState::ReadCached,
    CacheState::ReadCold,
    CacheState::ReadDirect,
    CacheState::Overwrite,
    CacheState::Extend,
    CacheState::OverwriteDirect,
    CacheState::ExtendDirect,
    CacheState::PreallocatedDirect,
    CacheState::HoleDirect,
    CacheState::Sync,
    CacheState::Preallocate,
];

/// Creates the file of a case, in the state that the case needs.
fn prepare(folder: &Path, case: CacheState) -> Result<DiskFile, String> {
    let path = folder.join(format!("{case:?}"));
    let direct = format!("{case:?}").ends_with("Direct");
    let full = OPERATIONS * STRIDE;
    let content = match case {
        CacheState::Extend
        | CacheState::ExtendDirect
        | CacheState::PreallocatedDirect
        | CacheState::HoleDirect => Vec::new(),
        _ => pattern(full),
    };
    std::fs::write(&path, content).map_err(|error| error.to_string())?;
    let file = std::fs::File::open(&path).map_err(|error| error.to_string())?;
    file.sync_all().map_err(|error| error.to_string())?;
    let access = if case == CacheState::ReadCold { Access::Random } else { Access::Normal };
    let mut options = DiskFile::options().read(true).write(true).direct(direct).access(access);
    if case == CacheState::PreallocatedDirect {
        options = options.preallocate(full as u64);
    }
    let file = options.open(&path).map_err(|error| error.to_string())?;
    if case == CacheState::HoleDirect {
        file.set_len(full as u64).map_err(|error| error.to_string())?;
    }
    if case != CacheState::ReadCached && case != CacheState::Overwrite {
        file.forget_cache().map_err(|error| error.to_string())?;
    }
    Ok(file)
}

fn operation(file: &DiskFile, case: CacheState, number: usize) -> Operation {
    let buffer = file.buffer(BLOCK).unwrap();
    let (near, far) = ((number * BLOCK) as u64, (number * STRIDE) as u64);
    match case {
        CacheState::ReadCached | CacheState::ReadCold | CacheState::ReadDirect => {
            Operation::read_exact_at(file, buffer, far)
        }
        CacheState::Extend | CacheState::ExtendDirect => {
            Operation::write_all_at(file, buffer, near)
        }
        CacheState::Sync => Operation::sync_data(file),
        CacheState::Preallocate => Operation::preallocate(file, far, STRIDE as u64),
        _ => Operation::write_all_at(file, buffer, far),
    }
}

/// Returns the number of times that the calling thread has slept.
fn sleeps_of_this_thread() -> usize {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps.unwrap().trim().parse().unwrap()
}

/// The most tries of a case in which threads of the kernel are faster than the calls that submit.
const MOST_TRIES: usize = 20;

/// Checks that the caller slept at least once for each operation that blocked it, and that exactly those operations
/// have class `Worker` that the kernel handed to a thread.
fn agree(oracle: &Oracle, name: &str, folder: &Path, case: CacheState) {
    let tries = (0..MOST_TRIES).find(|_| agrees(oracle, name, folder, case));
    assert!(tries.is_some(), "{name}: {case:?}: threads of the kernel are always faster");
}

/// Returns false if a thread of the kernel was faster than the call that submitted: that operation counts as done in
/// the call (see `Class`). On a busy machine one of thousands is.
fn agrees(oracle: &Oracle, name: &str, folder: &Path, case: CacheState) -> bool {
    // The program behind it preallocates nothing.
    let need = if name == "fuse" { Need::Storage } else { Need::Filesystem(name) };
    let file = match prepare(folder, case) {
        Ok(file) => file,
        Err(reason) => {
            skipped(need, format_args!("{name}: {case:?}: {reason}"));
            return true;
        }
    };
    let options = EngineOptions {
        backend: BackendKind::IoUring,
        depth: OPERATIONS,
        classes: true,
        cached_first: false,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(options).unwrap();
    oracle.handed_over();
    for number in 0..OPERATIONS {
        // All are queued before one is taken back, so each is known to the kernel by its own number.
        engine.queue(operation(&file, case, number)).unwrap();
    }
    let sleeps = sleeps_of_this_thread();
    engine.submit().unwrap();
    let sleeps = sleeps_of_this_thread() - sleeps;
    let (mut workers, mut counts) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    let (mut blocked, mut cached) = (BTreeSet::new(), BTreeSet::new());
    while let Some(done) = engine.next().unwrap() {
        let completion = match done.result {
            Ok(completion) => completion,
            Err(error) if case == CacheState::Preallocate => {
                skipped(need, format_args!("{name}: {case:?}: {error}"));
                return true;
            }
            Err(error) => panic!("{name}: {case:?}: {error}"),
        };
        let class = completion.class;
        *counts
            .entry(class.map_or("unknown".to_owned(), |class| class.to_string()))
            .or_default() += 1;
        match class {
            Some(Class::Worker) => _ = workers.insert(done.id.number()),
            Some(Class::InlineBlocked) => _ = blocked.insert(done.id.number()),
            Some(Class::InlineCached) => _ = cached.insert(done.id.number()),
            _ => {}
        }
    }
    let mut handed_over: BTreeSet<u64> = oracle.handed_over().into_iter().collect();
    if name == "fuse" {
        // The caller has waited for the page, and a thread has read it.
        handed_over.retain(|number| !blocked.contains(number));
    }
    println!("{name:<8} {case:<18} {counts:?}", case = format!("{case:?}"));
    assert!(!counts.contains_key("unknown"), "{name}: {case:?}: {counts:?}");
    assert!(blocked.len() <= sleeps, "{name}: {case:?}: {counts:?}, but only {sleeps} calls slept");
    let is_in_call = |number: &u64| blocked.contains(number) || cached.contains(number);
    if workers != handed_over && handed_over.iter().all(|it| workers.contains(it) || is_in_call(it))
    {
        // Of the others, none has a thread.
        handed_over.retain(|number| !is_in_call(number));
        assert_eq!(workers, handed_over, "{name}: {case:?}: {counts:?}");
        counted(&format!("{name}: {case:?}: a thread was faster than the call, once more"));
        return false;
    }
    assert_eq!(
        workers,
        handed_over,
        "{name}: {case:?}: {counts:?}, and the kernel says {}",
        handed_over.len()
    );
    true
}

fn on(oracle: &Oracle, name: &str, folder: &Path, cases: &[CacheState]) {
    for case in cases {
        agree(oracle, name, folder, *case);
    }
}

/// A folder seen through a program.
fn fuse(folder: &Path, below: &Path) -> Result<Mounted, Lack> {
    let (there, place) = (below.join("behind"), folder.join("fuse"));
    for made in [&there, &place] {
        std::fs::create_dir_all(made).unwrap();
    }
    run("bindfs", &[&there, &place]).map_err(|error| Lack::new(Need::Program("bindfs"), error))?;
    Ok(Mounted::at(place))
}

#[watched_test]
fn a_lone_operation_is_a_plain_call_unless_classes_are_on() {
    let folder = folder();
    let backend = BackendKind::IoUring;
    let has_ring = super::engine(EngineOptions { backend, ..Default::default() }).is_some();
    if !has_ring || super::has_one_processor() {
        return;
    }
    let path = folder.path().join("alone");
    std::fs::write(&path, pattern(BLOCK)).unwrap();
    let file = DiskFile::options().read(true).write(true).open(&path).unwrap();
    for classes in [false, true] {
        // Its thread is new: the workers that the kernel gives to one stay for some time.
        let work = || {
            let options = EngineOptions { backend, classes, ..Default::default() };
            let mut engine = Engine::new(options).unwrap();
            // The kernel hands either to a worker, if it comes by the ring.
            let written =
                engine.write_all_at(&file, file.buffer(BLOCK).unwrap(), 0).result.unwrap();
            let synced = engine.sync_all(&file).result.unwrap();
            assert_eq!((written.bytes, written.order, synced.order), (BLOCK, 0, 1));
            assert_eq!(synced.class.is_some(), classes);
            if kernel() >= (5, 12) {
                let workers = pipewright_os::disk::thread_usage::kernel_workers();
                assert_eq!(workers > Some(0), classes);
            } else {
                skipped(
                    Need::Kernel("5.12"),
                    "workers of io_uring are threads of their process since Linux 5.12",
                );
            }
            let read = engine.read_at(&file, file.buffer(BLOCK).unwrap(), 0).result.unwrap();
            assert_eq!((read.bytes, read.order), (BLOCK, 2));
            assert_eq!(read.class.is_some(), classes);
            synced.class
        };
        // On a busy machine the worker may be done before the call returns, and then it looks as if the call had done
        // the work (see `Class`).
        let class = classes.then_some(Class::Worker);
        watchdog::until("the class of the sync is told", || {
            std::thread::scope(|scope| scope.spawn(work).join().unwrap()) == class
        });
    }
}

#[isolated_test(limit = std::time::Duration::from_secs(300))]
fn the_class_agrees_with_the_kernels_own_tracepoint() {
    let folder = folder();
    if let Err(error) =
        Engine::new(EngineOptions { backend: BackendKind::IoUring, ..Default::default() })
    {
        return skipped(Need::IoUring, error);
    }
    if let Err(lack) = private() {
        return lack.skip();
    }
    if super::has_one_processor() {
        return;
    }
    let oracle = match Oracle::new(folder.path()) {
        Ok(oracle) => oracle,
        Err(lack) => return lack.skip(),
    };
    let disk = |kind: &'static str, bytes| loop_mount(folder.path(), kind, bytes, "rw");
    match disk("ext4", 128 * MIB) {
        Err(lack) => lack.skip_part("ext4, overlay, fuse"),
        Ok(ext4) => {
            on(&oracle, "ext4", ext4.path(), &CASES);
            match overlay(folder.path(), ext4.path()) {
                Ok(overlay) => on(&oracle, "overlay", overlay.path(), &CASES),
                Err(lack) => lack.skip_part("overlay"),
            }
            match fuse(folder.path(), ext4.path()) {
                Ok(fuse) => on(&oracle, "fuse", fuse.path(), &CASES),
                Err(lack) => lack.skip_part("fuse"),
            }
        }
    }
    let secret = |ext4: &Mounted| {
        let secret = ext4.path().join("secret");
        encrypted_folder(&secret).map(|()| secret)
    };
    let encrypting = loop_mount_encrypting(folder.path(), 128 * MIB);
    match encrypting.and_then(|ext4| Ok((secret(&ext4)?, ext4))) {
        Ok((secret, _ext4)) => on(&oracle, "fscrypt", &secret, &CASES),
        Err(lack) => lack.skip_part("fscrypt"),
    }
    for (kind, bytes) in [("xfs", 512 * MIB), ("btrfs", 256 * MIB)] {
        match disk(kind, bytes) {
            Ok(mounted) => on(&oracle, kind, mounted.path(), &CASES),
            Err(lack) => lack.skip(),
        }
    }
    match mount(folder.path(), "tmpfs", &["-t", "tmpfs", "-o", "size=128m", "none"]) {
        Ok(tmpfs) => on(&oracle, "tmpfs", tmpfs.path(), &CASES),
        Err(lack) => lack.skip_part("tmpfs"),
    }
}
