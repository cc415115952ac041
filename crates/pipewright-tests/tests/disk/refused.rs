//! Kernels that refuse asynchronous I/O: the ladder goes down, says why, and everything works.

use pipewright_disk::{
    BackendKind, Engine, EngineOptions, ErrorKind, Operation, SharedEngine, UnavailableBackend,
    UnavailableReason,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::kernel::refuse;
use pipewright_tests::skip::{Need, is_forced_off, skipped};

use super::{file_with, folder, pattern};

const BYTES: usize = 1 << 20;

/// Runs operations of every kind on the backend that the ladder chooses.
fn everything_works() -> (BackendKind, Vec<UnavailableBackend>) {
    let folder = folder();
    let content = pattern(BYTES);
    let mut engine = Engine::new(EngineOptions::default()).unwrap();
    let shared = SharedEngine::new(EngineOptions::default()).unwrap();
    assert_eq!(
        (shared.backend(), shared.unavailable_backends()),
        (engine.backend(), engine.unavailable_backends())
    );
    for direct in [false, true] {
        let file = file_with(&folder, "works", &[], direct);
        let mut buffer = file.buffer(BYTES).unwrap();
        buffer.copy_from_slice(&content);
        let done = engine.write_all_at(&file, buffer, 0);
        assert_eq!(done.result.unwrap().bytes, BYTES);
        engine.sync_all(&file).result.unwrap();
        let done = shared.read_exact_at(&file, done.buffer, 0).wait();
        assert_eq!(done.result.unwrap().bytes, BYTES);
        assert!(done.buffer[..] == content);
        file.forget_cache().unwrap();
        for block in 0..100 {
            let buffer = file.buffer(4096).unwrap();
            engine.queue(Operation::read_exact_at(&file, buffer, block * 4096)).unwrap();
        }
        while let Some(done) = engine.next().unwrap() {
            done.result.unwrap();
        }
        shared.preallocate(&file, 0, 2 * BYTES as u64).wait().result.unwrap();
        shared.sync_data(&file).wait().result.unwrap();
    }
    (engine.backend(), engine.unavailable_backends().to_vec())
}

/// Refuses these calls to this process, and checks the steps of the ladder.
fn with_filesystem_refusing(
    calls: &[libc::c_long],
    errno: i32,
    expected: &[(BackendKind, UnavailableReason)],
) {
    refuse(calls, errno);
    let (backend, steps) = everything_works();
    let reported: Vec<_> = steps.iter().map(|step| (step.backend, step.reason)).collect();
    if is_forced_off("io_uring") {
        assert_eq!(reported[0], (BackendKind::IoUring, UnavailableReason::LeftOut));
    } else {
        assert_eq!(reported, expected);
        let next = [BackendKind::IoUring, BackendKind::Aio, BackendKind::Threads][expected.len()];
        assert_eq!(backend, next);
    }
    // A request for it by name returns the reason.
    let asked = EngineOptions { backend: BackendKind::IoUring, ..EngineOptions::default() };
    let error = Engine::new(asked).unwrap_err();
    let reason = reported[0].1;
    assert_eq!(error.kind(), &ErrorKind::NoBackend { reason });
    assert_eq!(
        error.to_string(),
        format!("cannot create an engine with backend io_uring: {reason}")
    );
}

#[isolated_test]
fn everything_works_without_io_uring() {
    with_filesystem_refusing(
        &[libc::SYS_io_uring_setup],
        libc::EPERM,
        &[(BackendKind::IoUring, UnavailableReason::Seccomp)],
    );
}

#[isolated_test]
fn a_seccomp_filter_with_enosys_is_distinct_from_an_old_kernel() {
    with_filesystem_refusing(
        &[libc::SYS_io_uring_setup],
        libc::ENOSYS,
        &[(BackendKind::IoUring, UnavailableReason::Seccomp)],
    );
}

#[isolated_test]
fn a_ring_without_io_uring_enter_is_not_used() {
    with_filesystem_refusing(
        &[libc::SYS_io_uring_enter],
        libc::EPERM,
        &[(BackendKind::IoUring, UnavailableReason::Seccomp)],
    );
}

#[isolated_test]
fn a_ring_without_io_uring_register_is_not_used() {
    with_filesystem_refusing(
        &[libc::SYS_io_uring_register],
        libc::EACCES,
        &[(BackendKind::IoUring, UnavailableReason::Seccomp)],
    );
}

#[isolated_test]
fn everything_works_without_newer_calls() {
    with_filesystem_refusing(
        // With EPERM for statx the standard library itself opens nothing.
        &[libc::SYS_io_uring_setup, libc::SYS_io_setup, libc::SYS_preadv2, libc::SYS_statx],
        libc::ENOSYS,
        &[
            (BackendKind::IoUring, UnavailableReason::Seccomp),
            (BackendKind::Aio, UnavailableReason::Seccomp),
        ],
    );
}

#[isolated_test]
fn everything_works_without_locked_memory() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) }, 0);
    let (backend, steps) = everything_works();
    // Linux 5.12 and later, and root, need no locked memory.
    if backend != BackendKind::IoUring && !is_forced_off("io_uring") {
        assert_eq!(steps[0].reason, UnavailableReason::MemlockLimit { limit_bytes: 0 });
    }
}

#[isolated_test]
fn without_threads_the_caller_does_the_work() {
    let folder = folder();
    let file = file_with(&folder, "alone", &pattern(BYTES), false);
    refuse(&[libc::SYS_clone3, libc::SYS_clone], libc::EAGAIN);
    let options = EngineOptions {
        backend: BackendKind::Threads,
        cached_first: false,
        ..EngineOptions::default()
    };
    assert!(SharedEngine::new(options).is_err());
    let mut engine = Engine::new(options).unwrap();
    for block in 0..100 {
        let buffer = file.buffer(4096).unwrap();
        engine.queue(Operation::read_exact_at(&file, buffer, block * 4096)).unwrap();
    }
    let mut done = 0;
    while let Some(one) = engine.next().unwrap() {
        one.result.unwrap();
        done += 1;
    }
    assert_eq!(done, 100);
}

#[isolated_test]
fn a_ring_that_stops_working_returns_an_error() {
    let options = EngineOptions {
        backend: BackendKind::IoUring,
        cached_first: false,
        ..EngineOptions::default()
    };
    let Ok(mut engine) = Engine::new(options) else {
        return skipped(Need::IoUring, "there is no io_uring here");
    };
    let shared = SharedEngine::new(options).unwrap();
    let folder = folder();
    let file = file_with(&folder, "stops", &pattern(BYTES), true);
    let buffer = || file.buffer(4096).unwrap();
    engine.read_at(&file, buffer(), 0).result.unwrap();
    shared.read_at(&file, buffer(), 0).wait().result.unwrap();
    refuse(&[libc::SYS_io_uring_enter], libc::EPERM);
    engine.queue(Operation::read_at(&file, buffer(), 0)).unwrap();
    assert_eq!(engine.submit().unwrap_err().kind(), &ErrorKind::PermissionDenied);
    assert_eq!(engine.next().unwrap_err().kind(), &ErrorKind::PermissionDenied);
    // A driver thread shares it and already waits: a new operation wakes that thread.
    let late = shared.read_at(&file, buffer(), 0).wait();
    if let Err(error) = late.result {
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
        let later = shared.write_at(&file, buffer(), 0).wait();
        assert_eq!(later.result.unwrap_err().kind(), &ErrorKind::PermissionDenied);
    }
}

#[isolated_test]
fn requests_that_the_kernel_has_no_thread_for_are_performed_all_the_same() {
    let folder = folder();
    let options = |classes| EngineOptions {
        backend: BackendKind::IoUring,
        cached_first: false,
        classes,
        ..EngineOptions::default()
    };
    let Ok(engine) = Engine::new(options(false)) else {
        return skipped(Need::IoUring, "there is no io_uring here");
    };
    let shared = SharedEngine::new(options(false)).unwrap();
    let mut engines = [engine, Engine::new(options(true)).unwrap()];
    let file = file_with(&folder, "alone", &[], false);
    // The limit on processes does not hold for root. SAFETY: takes numbers.
    unsafe { libc::setresuid(65534, 65534, 65534) };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const none) }, 0);
    let content = pattern(BYTES);
    for engine in &mut engines {
        let mut buffer = file.buffer(BYTES).unwrap();
        buffer.copy_from_slice(&content);
        engine.queue(Operation::write_all_at(&file, buffer, 0)).unwrap();
        assert_eq!(engine.next().unwrap().unwrap().result.unwrap().bytes, BYTES);
        for sync in [Operation::sync_all(&file), Operation::sync_data(&file)] {
            engine.queue(sync).unwrap();
            engine.next().unwrap().unwrap().result.unwrap();
        }
        engine.queue(Operation::preallocate(&file, 0, 2 * BYTES as u64)).unwrap();
        engine.next().unwrap().unwrap().result.unwrap();
    }
    shared.sync_all(&file).wait().result.unwrap();
    assert!(!file.is_poisoned());
    assert!(std::fs::read(file.path()).unwrap()[..BYTES] == content);
}

#[isolated_test]
fn a_sync_interrupted_by_the_system_is_not_repeated() {
    let folder = folder();
    let file = file_with(&folder, "interrupted", &[], false);
    let options = EngineOptions { backend: BackendKind::Caller, ..EngineOptions::default() };
    let mut engine = Engine::new(options).unwrap();
    refuse(&[libc::SYS_fsync, libc::SYS_fdatasync], libc::EINTR);
    // A loop around the call would never end.
    let error = engine.sync_all(&file).result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINTR));
    assert!(file.is_poisoned());
}

#[isolated_test]
fn a_full_completion_ring_is_a_reason_to_wait() {
    const INSIDE: &str = "PIPEWRIGHT_DISK_REFUSED_CASE";
    let options = EngineOptions {
        backend: BackendKind::IoUring,
        cached_first: false,
        ..EngineOptions::default()
    };
    if std::env::var_os(INSIDE).is_some() {
        let folder = folder();
        let file = file_with(&folder, "full", &pattern(BYTES), true);
        let mut engine = Engine::new(options).unwrap();
        let buffer = || file.buffer(4096).unwrap();
        engine.queue(Operation::read_exact_at(&file, buffer(), 0)).unwrap();
        engine.submit().unwrap();
        assert_eq!(engine.next().unwrap().unwrap().result.unwrap().bytes, 4096);
        let shared = SharedEngine::new(options).unwrap();
        for _ in 0..3 {
            assert_eq!(shared.read_exact_at(&file, buffer(), 0).wait().result.unwrap().bytes, 4096);
        }
        return;
    }
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "it makes calls fail");
    }
    if Engine::new(options).is_err() {
        return skipped(Need::IoUring, "its own failures are tried");
    }
    // The first call of each ring is a test of it. Kernels before 5.13 refuse to submit while completions wait for
    // room.
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_enter", "-e"]);
    command.arg("inject=io_uring_enter:error=EBUSY:when=2");
    command.arg(std::env::current_exe().unwrap()).arg(pipewright_tests::watchdog::current_test());
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
