//! Limits that cannot be held: an error that says why and what would help, or a start without them.

use pipewright::{
    Command, Contain, ErrorKind, LimitKind, LimitMechanism, Limits, MemoryLimit, Outcome, Scope,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::mounts;
use pipewright_tests::skip::{Need, is_root, skipped};
use rustix::mount::{MountFlags, mount_remount};

use super::puppet;
use super::tree_limits::memory;

/// A user with no rights.
const NOBODY: u32 = 65534;

/// Gives up the rights of root, and with them every cgroup that belongs to root.
fn become_nobody() -> bool {
    if !is_root() {
        return true;
    }
    let nobody = rustix::process::Uid::from_raw(NOBODY);
    rustix::thread::set_thread_groups(&[]).is_ok()
        && rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok()
}

#[isolated_test]
fn an_ordinary_user_is_told_why_and_what_would_help() {
    if !become_nobody() {
        return skipped(Need::Root, "this process cannot give up its rights");
    }
    let error = match Command::new("true").limits(memory(32 << 20)).capture() {
        Ok(_) => return skipped(Need::UserWithoutCgroup, "an ordinary user has a cgroup here"),
        Err(error) => error,
    };
    let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
    assert_eq!(limit.limit, LimitKind::Memory);
    assert!(!limit.reason.is_empty());
    if error.to_string().contains("no memory controller is mounted") {
        return skipped(
            Need::TreeLimits,
            "no memory controller is mounted, and nothing would help",
        );
    }
    assert!(limit.remedy.is_some(), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert!(error.to_string().contains("memory_max cannot be held: "), "{error}");
    assert!(error.to_string().contains("; try: "), "{error}");
    assert!(error.is_start());

    let limits = memory(32 << 20).cpu_max(1.0).pids_max(50).best_effort();
    match Command::new("true").limits(limits).capture() {
        Ok(capture) => {
            assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(0)));
            let held = capture.limits.unwrap();
            let missing: Vec<_> = held.missing.iter().map(|missing| missing.limit).collect();
            let all = [LimitKind::Swap, LimitKind::Cpu, LimitKind::Pids];
            assert!(all.iter().all(|kind| missing.contains(kind)), "{missing:?}");
            // The memory is looked after without the kernel, and the result says so.
            assert_eq!(held.mechanism, Some(LimitMechanism::Sampled));
            assert_eq!(held.sampled.map(|sampled| sampled.limit), Some(LimitKind::Memory));
            assert_eq!(held.limits.kinds().collect::<Vec<_>>(), [LimitKind::Memory]);
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Unsupported), "{error}"),
    }
}

/// A container has its cgroups, and cannot write to them.
#[isolated_test]
fn a_read_only_cgroup_is_an_error_that_says_so() {
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    let mounted = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = mounted.lines().filter(|line| line.contains(" - cgroup"));
    for place in places.filter_map(|line| line.split(' ').nth(4)) {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        if let Err(error) = mount_remount(place, flags, c"") {
            return skipped(Need::Mount, error);
        }
    }
    let error = Command::new("true").limits(memory(32 << 20)).capture().unwrap_err();
    let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
    if error.to_string().contains("no memory controller is mounted") {
        return skipped(
            Need::TreeLimits,
            "no memory controller is mounted, and nothing would help",
        );
    }
    assert_eq!(limit.limit, LimitKind::Memory);
    assert!(limit.reason.ends_with(" is mounted read-only"), "{error}");
    assert!(limit.remedy.as_ref().is_some_and(|it| it.contains("container")), "{error}");
    // Without the kernel, if that is allowed.
    let limits = memory(1 << 30).best_effort();
    match Command::new("true").limits(limits).capture() {
        Ok(capture) => {
            assert_eq!(capture.limits.unwrap().mechanism, Some(LimitMechanism::Sampled));
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Unsupported), "{error}"),
    }
}

#[isolated_test]
fn memory_is_looked_after_without_the_kernel_if_that_is_allowed() {
    const BYTES: u64 = 32 << 20;
    if !become_nobody() {
        return skipped(Need::Root, "this process cannot give up its rights");
    }
    let limits = Limits::new().memory_max(BYTES);
    match Command::new("true").limits(limits).contain(Contain::Tree).capture() {
        Ok(_) => return skipped(Need::UserWithoutCgroup, "an ordinary user has a cgroup here"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::LimitUnavailable { .. }), "{error}")
        }
    }
    // Reads a line without an end, slowly, and keeps all of it.
    let hungry =
        "i=0; while [ $i -lt 400 ]; do head -c 1M /dev/zero; sleep 0.01; i=$((i+1)); done | tail";
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).limits(limits.best_effort()).kill_on_parent_exit(Scope::Tree);
        command.capture()
    };
    let capture = match run(hungry) {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
            return skipped(Need::Supervisor, error);
        }
        capture => capture.unwrap(),
    };
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    assert_eq!(oom.limit, MemoryLimit::OfCommand(BYTES));
    assert!(oom.peak_bytes > Some(BYTES), "{oom:?}");
    assert_eq!(capture.limits.unwrap().mechanism, Some(LimitMechanism::Sampled));
    let capture = run("exit 3").unwrap();
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
}

#[watched_test]
fn a_value_that_cannot_be_meant_is_refused() {
    let none = Limits::new();
    for limits in [none.pids_max(0), none.cpu_max(0.0), none.cpu_max(f64::NAN), none.oom_group()] {
        let error = puppet(["exit=0"]).limits(limits).status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{limits:?}");
    }
}
