//! Few or no free descriptors: trees are held as always, or the start says so; what fails once is tried again.

use std::fs::File;
use std::time::Duration;

use pipewright::{
    Command, Contain, Containment, ErrorKind, Limits, Scope, Signal, Stdio, TreeSlot,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, pace, watchdog};

use super::puppet;

const MARK: &str = "PIPEWRIGHT_FEW_HANDLES_TEST";

/// Uses all descriptors except that many. Dropping the list frees them.
pub(super) fn leave(free: usize) -> Vec<File> {
    let few = libc::rlimit { rlim_cur: 128, rlim_max: 4096 };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let mut held = Vec::with_capacity(128);
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    held.truncate(held.len() - free);
    held
}

/// Returns the number of descriptors that a verb's own runtime takes, in a test of the tasks.
fn taken_by_a_runtime() -> usize {
    #[cfg(pipewright_test_hooks)]
    if let Some(runtime) = pipewright_os::base::test_hooks::runtime() {
        let with = pipewright_tests::count::handles();
        drop(runtime);
        return with - pipewright_tests::count::handles();
    }
    0
}

/// Returns a command that leaves a process behind.
fn tree(how: &str, mark: &str) -> Command {
    let mut command = puppet(["daemon=600", "exit=0"]);
    command.env(MARK, alive::mark(mark)).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).contain(Contain::Tree);
    match how {
        "tree" => {}
        "parent" => _ = command.kill_on_parent_exit(Scope::Tree),
        "limit" => _ = command.limits(Limits::new().pids_max(1000)),
        other => panic!("{other}"),
    }
    command
}

/// Starts a tree, and returns what holds it, or the error.
fn held(how: &str, mark: &str) -> Result<String, String> {
    let child = tree(how, mark).spawn().map_err(|error| format!("{:?}", error.kind()))?;
    let held = format!("{:?}", child.containment());
    child.wait().unwrap();
    drop(child);
    Ok(held)
}

const CASE: &str = "PIPEWRIGHT_FEW_HANDLES_CASE";

#[isolated_test]
fn one_moment_without_descriptors_is_not_remembered() {
    const MOST_FREE: usize = 14;
    if let Ok(case) = std::env::var(CASE) {
        let (how, free) = case.split_once(' ').unwrap();
        let free = leave(free.parse().unwrap());
        let first = held(how, &case);
        drop(free);
        let (second, third) = (held(how, &case), held(how, &case));
        println!("RESULT {first:?} | {second:?} | {third:?}");
        // What a group does not hold.
        alive::marked(MARK, &case).into_iter().for_each(alive::kill);
        return;
    }
    let result = |case: String| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let test = watchdog::current_test();
        command.args([test.as_str(), "--exact", "--nocapture", "--test-threads=1"]);
        let output = command.env(CASE, &case).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{case}: {text}");
        let line = text.lines().find_map(|line| line.split_once("RESULT ")).unwrap().1.to_owned();
        line.split(" | ").map(str::to_owned).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for how in ["tree", "parent", "limit"] {
        let usual = result(format!("{how} 60"))[0].clone();
        for free in 0..MOST_FREE {
            let found = result(format!("{how} {free}"));
            let first_is_right = found[0] == usual || found[0].contains("Limit {");
            if !first_is_right || found[1] != usual || found[2] != usual {
                wrong.push(format!("{how}, {free} free: {found:?}, usually {usual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[isolated_test]
fn a_tree_ends_without_a_free_descriptor() {
    for how in ["tree", "parent", "limit"] {
        let mark = format!("end {how}");
        let Ok(child) = tree(how, &mark).spawn() else { continue };
        child.wait().unwrap();
        let marked = alive::marked(MARK, &mark);
        assert!(!marked.is_empty(), "{how}");
        if child.containment() == Containment::Group {
            marked.into_iter().for_each(alive::kill);
            return skipped(Need::Supervisor, "a group does not hold what has left it");
        }
        let held = leave(0);
        drop(child);
        drop(held);
        watchdog::until(&format!("the tree is gone: {how}"), || {
            alive::marked(MARK, &mark).is_empty()
        });
    }
}

#[isolated_test]
fn a_wait_with_a_timeout_keeps_the_tree_until_the_drop() {
    for how in ["tree", "parent", "limit"] {
        let mark = format!("kept {how}");
        let child = tree(how, &mark).timeout(pace::seconds(60)).spawn();
        let Ok(child) = child else { continue };
        child.wait().unwrap();
        assert!(child.try_wait_for(Duration::ZERO).unwrap().is_some());
        assert!(child.stop().is_ok());
        let is_held = child.containment() != Containment::Group;
        assert!(!alive::marked(MARK, &mark).is_empty(), "{how}");
        drop(child);
        if is_held {
            watchdog::until(&format!("the tree is gone: {how}"), || {
                alive::marked(MARK, &mark).is_empty()
            });
        }
        alive::marked(MARK, &mark).into_iter().for_each(alive::kill);
    }
}

#[isolated_test]
fn a_stop_with_few_free_descriptors_reaches_all_descendants() {
    const DESCENDANTS: usize = 150;
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    for free in [40, 10, 4, 2, 1, 0] {
        let mark = format!("stop {free}");
        let mut command = Command::new("sh");
        // Each leaves the group of the child.
        let script = format!(
            "i=0; while [ $i -lt {DESCENDANTS} ]; do setsid sleep 600 & i=$((i+1)); done; wait"
        );
        command.args(["-c", &script]).env(MARK, alive::mark(&mark));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        watchdog::until("all have started", || alive::marked(MARK, &mark).len() > DESCENDANTS);
        let held = leave(free + taken_by_a_runtime());
        let stopped = child.stop_with(Signal::TERM, Duration::from_secs(60));
        drop(held);
        let left = alive::marked(MARK, &mark);
        left.iter().for_each(|pid| alive::kill(*pid));
        match stopped {
            Ok(_) => assert!(left.is_empty(), "{free} free: {} live on", left.len()),
            Err(error) => {
                assert!(free < 4, "{free} free: {error}");
                assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
                // If the wait failed first, the next one says that descendants may be left.
                let _ = child.wait();
                child.wait().unwrap();
            }
        }
    }
}

#[isolated_test]
fn a_stop_without_a_free_descriptor_reports_that_descendants_may_be_left() {
    let mut command = Command::new("sh");
    command.args(["-c", "setsid sleep 600 & wait"]).env(MARK, alive::mark("none"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    watchdog::until("all have started", || alive::marked(MARK, "none").len() == 2);
    let held = leave(0);
    let stopped = child.kill();
    drop(held);
    let kind = stopped.unwrap_err().kind().clone();
    alive::marked(MARK, "none").into_iter().for_each(alive::kill);
    assert!(matches!(kind, ErrorKind::Limit { .. }), "{kind:?}");
    child.wait().unwrap();
}

/// Makes a slot or starts a tree that needs a supervisor.
fn supervised(how: &str, mark: &str) -> Result<String, String> {
    match how {
        "slot" => {
            TreeSlot::new().map(|_| "a slot".to_owned()).map_err(|it| format!("{:?}", it.kind()))
        }
        _ => held(how, mark),
    }
}

#[isolated_test]
fn one_failed_call_of_a_first_supervised_start_is_not_taken_for_a_refusal() {
    if let Ok(case) = std::env::var(CASE) {
        let how = case.split_once(' ').unwrap().0;
        for attempt in ["first", "second"] {
            println!("{attempt} {:?}", supervised(how, &case));
        }
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "is not here");
    }
    if super::cannot_supervise() {
        return;
    }
    for (call, errno) in [
        ("memfd_create", "EMFILE"),
        ("memfd_create", "ENOMEM"),
        ("socketpair", "ENOMEM"),
        ("socketpair", "ENFILE"),
        ("recvmsg", "ENOMEM"),
    ] {
        for how in ["parent", "slot"] {
            let mut command = std::process::Command::new("strace");
            command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
            command.arg(format!("inject={call}:error={errno}:when=1"));
            command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
            command.args(["--exact", "--nocapture", "--test-threads=1"]);
            let output = command.env(CASE, format!("{how} {call} {errno}")).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("first Err(\"Limit {"), "{how}, {call}, {errno}: {text}");
            assert!(text.contains("second Ok("), "{how}, {call}, {errno}: {text}");
        }
    }
}

#[isolated_test]
fn a_reached_limit_on_processes_is_not_taken_for_a_sandbox() {
    // Not in a process whose first start is the one that is tried.
    if std::env::var(CASE).is_err() && super::cannot_supervise() {
        return;
    }
    for how in ["parent", "slot"] {
        // Each first in its process.
        if std::env::var(CASE).is_err() {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.arg(watchdog::current_test()).args(["--exact", "--nocapture"]);
            let output = command.env(CASE, how).output().unwrap();
            assert!(output.status.success(), "{how}: {output:?}");
            continue;
        }
        if std::env::var(CASE).as_deref() != Ok(how) {
            continue;
        }
        // The limit does not hold for root. SAFETY: takes numbers.
        unsafe { libc::setresuid(65534, 65534, 65534) };
        if let Err(error) = puppet(["exit=0"]).status() {
            return skipped(Need::PublicTarget, error);
        }
        let limit = |soft: u64| {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: 1000 };
            // SAFETY: a live struct.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
        };
        for free in 0..4 {
            // This process and its threads count.
            limit(count_of_own_threads() + free);
            let kind = match supervised(how, how) {
                Ok(_) => continue,
                Err(kind) => kind,
            };
            assert!(kind.starts_with("Limit {"), "{how}, {free} free: {kind}");
        }
        limit(1000);
        supervised(how, how).unwrap();
    }
}

/// Returns the number of threads of this user that the limit counts.
fn count_of_own_threads() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    line.trim().parse().unwrap()
}

#[isolated_test]
fn a_pipeline_whose_second_stage_cannot_be_held_is_not_to_be_tried_again() {
    if std::env::var_os(CASE).is_some() {
        let dir = tempfile::tempdir().unwrap();
        let ran = dir.path().join("ran");
        let mut first = Command::new("touch");
        first.arg(&ran).kill_on_parent_exit(Scope::Tree);
        let mut second = puppet(["exit=0"]);
        second.kill_on_parent_exit(Scope::Tree);
        let error = pipewright::Pipeline::new([first, second]).output().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
        assert_eq!(error.kind(), &ErrorKind::Io, "the first stage may have run");
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "it makes calls fail");
    }
    if super::cannot_supervise() {
        return;
    }
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=socketpair", "-e"]);
    command.arg("inject=socketpair:error=ENOSYS:when=2");
    command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, "inside").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
