//! Contained trees under hostile limits, hosts and processes, and with few or no free descriptors.

use std::fs::File;
use std::time::Duration;

use pipewright::{
    Command, Contain, Containment, ErrorKind, Limits, Scope, Signal, Stdio, TreeSlot,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, is_root, kernel, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use crate::{cannot_supervise, puppet};

const MARK: &str = "PIPEWRIGHT_TREES_HOSTILE_TEST";

/// Returns a command below a supervisor, whose processes have that mark.
fn supervised<I: IntoIterator<Item = S>, S: AsRef<str>>(mark: &str, acts: I) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).kill_on_parent_exit(Scope::Tree);
    command
}

#[track_caller]
fn no_process_is_left(mark: &str) {
    watchdog::until("no process is left", || alive::marked(MARK, mark).is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
}

#[isolated_test]
fn a_host_that_ignores_sigchld_still_gets_exit_statuses() {
    // SAFETY: SIG_IGN runs no code; this process runs only this test.
    let ignore = || unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if cannot_supervise() {
        return;
    }
    ignore();
    let supervised_one = supervised("ignores", ["status=SigIgn"]).read().unwrap();
    if kernel() >= (6, 15) {
        assert_eq!(supervised_one, puppet(["status=SigIgn"]).read().unwrap());
    } else {
        skipped(
            Need::PidfdInfo,
            "the kernel reaps plain children, and has their status since Linux 6.15 (PIDFD_GET_INFO)",
        );
    }
    let mut command = supervised("ignores", ["daemon=600", "exit=7"]);
    let output = command.stderr(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.leftovers_killed), (Some(7), 1));
    no_process_is_left("ignores");
}

#[watched_test]
fn a_command_in_a_group_of_its_own_can_be_stopped_by_its_terminal() {
    for scope in [None, Some(Scope::Tree)] {
        if scope.is_some() && cannot_supervise() {
            return;
        }
        let mut command = puppet(["wait=600"]);
        command.env(MARK, alive::mark("stopped")).own_group();
        if let Some(scope) = scope {
            command.kill_on_parent_exit(scope);
        }
        let child = command.spawn().unwrap();
        // The signal of Ctrl-Z. The kernel drops it if no process of the session could continue the group.
        child.signal("TSTP".parse::<Signal>().unwrap()).unwrap();
        watchdog::until(&format!("it has stopped {scope:?}"), || {
            alive::state(child.id()) == Some('T')
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[isolated_test]
fn a_start_without_free_handles_leaves_nothing() {
    if cannot_supervise() {
        return;
    }
    let set_limit = |soft: u64| {
        let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let new = rustix::process::Rlimit { current: Some(soft), maximum: old.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
        old.current.unwrap()
    };
    let open = pipewright_os::base::handle::open_handles().unwrap();
    let highest = open.iter().map(|handle| handle.number as u64).max().unwrap();
    // The two programs need some free numbers to arrange their handles, however few are open.
    let old = set_limit(15);
    let error = supervised("room", ["spawn=daemon=600", "exit=3"]).status().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
    // Enough for the two, and for the few that this process has.
    for limit in [20, 22].map(|it| it + taken_by_a_runtime() as u64) {
        set_limit(limit);
        let status = supervised("room", ["spawn=daemon=600", "exit=3"]).status();
        assert_eq!(status.map(|it| it.code()).ok(), Some(Some(3)), "with a limit of {limit}");
    }
    set_limit(old);
    no_process_is_left("room");
    // No gap is left below that.
    let old = set_limit(highest + 1);
    let fill = || std::fs::File::open("/dev/null");
    let fillers: Vec<_> = std::iter::from_fn(|| fill().ok()).collect();
    set_limit(old);
    let before = count::handles();
    let mut started = 0;
    for room in 0..24 {
        let old = set_limit(highest + 1 + room);
        let mut command = supervised("room", ["spawn=daemon=600", "exit=3"]);
        command.stderr(Stdio::inherit());
        let result = command.stdin(Stdio::inherit()).status();
        set_limit(old);
        match result {
            Ok(status) => {
                assert_eq!(status.code(), Some(3), "with room for {room}");
                started += 1;
            }
            Err(error) => {
                eprintln!("{room}: {error}");
                assert_eq!(started, 0, "{error}, with room for {room}");
                let raw = error.raw_os_error();
                assert_eq!(raw, Some(libc::EMFILE), "{error}, with room for {room}");
            }
        }
        no_process_is_left("room");
        watchdog::until("every handle is closed", || count::handles() <= before);
    }
    assert!(started > 0);
    drop(fillers);
}

#[isolated_test]
fn a_process_limit_is_an_error_and_leaves_nothing() {
    if cannot_supervise() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root can become a user without other processes");
    }
    // Only this thread; no other process has that user.
    let user = 3_000_000 + std::process::id();
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
    for room in 1..=5 {
        let limit = libc::rlimit { rlim_cur: room, rlim_max: 4096 };
        // SAFETY: a live value.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
        match supervised("processes", ["exit=3"]).status() {
            Ok(status) => assert_eq!(status.code(), Some(3)),
            Err(error) => {
                eprintln!("{room}: {error}");
                let raw = error.raw_os_error();
                assert_eq!(raw, Some(libc::EAGAIN), "{error}, with room for {room}");
            }
        }
        watchdog::until("every child is reaped", || count::children().is_empty());
    }
}

#[watched_test]
fn killing_both_supervisors_at_once_does_not_free_the_command() {
    if cannot_supervise() {
        return;
    }
    let child = supervised("both", ["wait=600"]).spawn().unwrap();
    let (mut inner, mut outer) = (0, 0);
    watchdog::until("the supervisors are as expected", || {
        let all = alive::supervisors(std::process::id());
        let parent_of = |child| all.iter().copied().find(|pid| alive::is_child_of(child, *pid));
        inner = parent_of(child.id()).unwrap_or(0);
        outer = parent_of(inner).unwrap_or(0);
        outer != 0
    });
    for pid in [outer, inner] {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid as i32).unwrap(),
            rustix::process::Signal::STOP,
        )
        .unwrap();
    }
    alive::kill(outer);
    alive::kill(inner);
    let _ = child.wait();
    let pid = child.id();
    drop(child);
    watchdog::until("the command has ended", || !alive::is_running(pid));
}

#[isolated_test(in_a_session)]
fn the_exit_of_a_command_sends_no_sighup_to_its_host() {
    if cannot_supervise() {
        return;
    }
    // A process of the group is stopped while the last one exits whose parent is in another group of the session: the
    // kernel then ends the group, which is orphaned (setpgid(2)).
    let stopped = puppet(["wait=600"]).kill_on_drop().spawn().unwrap();
    stopped.signal(Signal::STOP).unwrap();
    watchdog::until("it is stopped", || alive::state(stopped.id()) == Some('T'));
    assert_eq!(supervised("hangup", ["exit=7"]).status().unwrap().code(), Some(7));
    no_supervisor_is_left();
    assert_eq!(alive::state(stopped.id()), Some('T'));
}

#[track_caller]
fn no_supervisor_is_left() {
    let host = std::process::id();
    watchdog::until("no supervisor is left", || alive::supervisors(host).is_empty());
}

#[watched_test]
fn nested_cgroups_are_part_of_the_tree() {
    let script =
        "top=$(grep cgroup2 /proc/mounts | head -n 1 | cut -d' ' -f2); test -n \"$top\" || exit 5
        cd \"$top/$(grep ^0:: /proc/self/cgroup | cut -d: -f3)\" && mkdir -p a/b || exit 5
        (echo 0 > a/b/cgroup.procs; exec setsid sleep 600) &
        until grep -q . a/b/cgroup.procs; do sleep 0.01; done; exit 5";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(MARK, alive::mark("below")).contain(Contain::Tree);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let capture = command.capture().unwrap();
    if capture.containment != Containment::Cgroup {
        // It may have left a group.
        alive::marked(MARK, "below").into_iter().for_each(alive::kill);
        return skipped(Need::Cgroup, "this machine has no cgroup");
    }
    assert_eq!((capture.status.code(), capture.leftovers_killed), (Some(5), 1));
    watchdog::until("no process is left", || alive::marked(MARK, "below").is_empty());
}

#[isolated_test]
fn too_many_handles_in_flight_is_an_error() {
    if cannot_supervise() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root can become a user without other handles");
    }
    let user = 3_000_000 + std::process::id();
    // SAFETY: numbers; only this thread becomes that user.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 4096 };
    // SAFETY: a live value.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    // Two messages of sixty handles each, which are not received.
    let (from, _to) = std::os::unix::net::UnixStream::pair().unwrap();
    for _ in 0..2 {
        let handles = [std::os::fd::AsFd::as_fd(&from); 60];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(60))];
        let mut rights = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(rustix::net::SendAncillaryMessage::ScmRights(&handles)));
        let part = [std::io::IoSlice::new(b"x")];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&from, &part, &mut rights, flags).unwrap();
    }
    let error = supervised("rights", ["wait=600"]).spawn().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ETOOMANYREFS), "{error}");
    no_process_is_left("rights");
}

const HANDLES_MARK: &str = "PIPEWRIGHT_FEW_HANDLES_TEST";

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
    command.env(HANDLES_MARK, alive::mark(mark)).stdin(Stdio::null()).stdout(Stdio::null());
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
        alive::marked(HANDLES_MARK, &case).into_iter().for_each(alive::kill);
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
        let marked = alive::marked(HANDLES_MARK, &mark);
        assert!(!marked.is_empty(), "{how}");
        if child.containment() == Containment::Group {
            marked.into_iter().for_each(alive::kill);
            return skipped(Need::Supervisor, "a group does not hold what has left it");
        }
        let held = leave(0);
        drop(child);
        drop(held);
        watchdog::until(&format!("the tree is gone: {how}"), || {
            alive::marked(HANDLES_MARK, &mark).is_empty()
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
        assert!(!alive::marked(HANDLES_MARK, &mark).is_empty(), "{how}");
        drop(child);
        if is_held {
            watchdog::until(&format!("the tree is gone: {how}"), || {
                alive::marked(HANDLES_MARK, &mark).is_empty()
            });
        }
        alive::marked(HANDLES_MARK, &mark).into_iter().for_each(alive::kill);
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
        command.args(["-c", &script]).env(HANDLES_MARK, alive::mark(&mark));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        watchdog::until("all have started", || {
            alive::marked(HANDLES_MARK, &mark).len() > DESCENDANTS
        });
        let held = leave(free + taken_by_a_runtime());
        let stopped = child.stop_with(Signal::TERM, Duration::from_secs(60));
        drop(held);
        let left = alive::marked(HANDLES_MARK, &mark);
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
    command.args(["-c", "setsid sleep 600 & wait"]).env(HANDLES_MARK, alive::mark("none"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    watchdog::until("all have started", || alive::marked(HANDLES_MARK, "none").len() == 2);
    let held = leave(0);
    let stopped = child.kill();
    drop(held);
    let kind = stopped.unwrap_err().kind().clone();
    alive::marked(HANDLES_MARK, "none").into_iter().for_each(alive::kill);
    assert!(matches!(kind, ErrorKind::Limit { .. }), "{kind:?}");
    child.wait().unwrap();
}

/// Makes a slot or starts a tree that needs a supervisor.
fn supervised_how(how: &str, mark: &str) -> Result<String, String> {
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
            println!("{attempt} {:?}", supervised_how(how, &case));
        }
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "is not here");
    }
    if crate::cannot_supervise() {
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
    if std::env::var(CASE).is_err() && crate::cannot_supervise() {
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
            let kind = match supervised_how(how, how) {
                Ok(_) => continue,
                Err(kind) => kind,
            };
            assert!(kind.starts_with("Limit {"), "{how}, {free} free: {kind}");
        }
        limit(1000);
        supervised_how(how, how).unwrap();
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
    if crate::cannot_supervise() {
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
