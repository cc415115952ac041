//! Children that misbehave.

use std::fs;
use std::time::Duration;

use pipewright::{CancelToken, Child, Command, ErrorKind, Linger, Outcome, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, is_forced_off, is_root, skipped};
use pipewright_tests::{TRUE, pace, watchdog};

use super::{in_time, later, puppet, short};

#[cfg(target_os = "linux")]
const MARK: &str = "PIPEWRIGHT_HOSTILE_TEST";

/// Starts a child with exactly that pid. Returns `None` if the pid is not available.
#[cfg(target_os = "linux")]
pub(crate) fn child_with_pid(pid: u32, acts: &[&str]) -> Option<Child> {
    for _ in 0..200 {
        // proc_sys_kernel(5): the next process gets the number after this one.
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let child = puppet(acts).stderr(Stdio::piped()).spawn().unwrap();
        if child.id() == pid {
            return Some(child);
        }
        // Another process got the number.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    None
}

/// Reports that [`child_with_pid`] has started none.
#[cfg(target_os = "linux")]
pub(crate) fn pid_is_taken() {
    let need = if is_root() { Need::Luck } else { Need::Root };
    skipped(need, "the next pid can only be chosen by root, on a quiet machine");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn the_children_of_an_unrelated_process_with_a_reused_pid_are_left_alone() {
    let ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let Some(mut unrelated) = child_with_pid(ended.id(), &["spawn=wait=600", "wait=600"]) else {
        return pid_is_taken();
    };
    let mut text = Vec::with_capacity(64);
    unrelated.stderr.take().unwrap().read_spare(&mut text).unwrap();
    let worker: u32 = String::from_utf8(text).unwrap().trim().parse().unwrap();
    let worker = KillOnDrop(worker);
    ended.kill().unwrap();
    // A kill would have been delivered before our later signal.
    assert!(unrelated.signal(Signal::CONT).unwrap());
    assert!(alive::is_running(worker.0), "it is not a child of ours");
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

#[watched_test]
fn a_child_that_leaves_its_group_is_still_stopped() {
    let script = "import os, time; os.setpgid(0, os.getpgid(os.getppid())); time.sleep(600)";
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skipped(Need::Program("python3"), "python3 is not here");
    }
    let mut command = Command::new("python3");
    command.args(["-c", script]).own_group().timeout(later()).kill_grace(short());
    let capture = command.capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    assert!(!alive::is_running(capture.pid));
}

#[watched_test]
fn a_cancel_after_the_end_gives_up_held_streams() {
    let token = CancelToken::new();
    let mut command = puppet(["out=x", "spawn=wait=600"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.linger(Linger::UntilEof).cancel(&token).spawn().unwrap();
    let pid = child.id();
    let canceller = std::thread::spawn(move || {
        watchdog::until("the child is reaped", || alive::state(pid).is_none());
        token.cancel();
    });
    let capture = child.read_all_text().unwrap();
    canceller.join().unwrap();
    let _holder = KillOnDrop(capture.stderr.trim().parse().unwrap());
    assert_eq!((capture.outcome, capture.held_open), (Outcome::Exited, true));
    assert_eq!(capture.stdout, "x");
}

#[watched_test]
fn an_infinite_grace_lets_the_child_exit_by_itself() {
    let script = "trap 'echo bye; exit 5' TERM; : > \"${0#touch=}\"; while :; do sleep 0.05; done";
    // The stop ends a shell that has not set its trap yet.
    let (_, capture) = in_time(later(), |limit, done| {
        let mut command = Command::new("sh");
        command.args(["-c", script, done]).timeout(limit).kill_grace(Duration::MAX);
        command.capture().unwrap()
    });
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::TimedOut, Some(5)));
    assert_eq!(capture.stdout, "bye\n");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_bounded_fork_bomb_is_killed() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    // Isolated: a stop holds each descendant by a handle. Each loop starts sleepers as fast as it can.
    let (loops, sleepers) = (pace::rounds(40, 10), pace::rounds(60, 20));
    let script = format!(
        "for i in $(seq {loops}); do (for j in $(seq {sleepers}); do sleep 600 & done; wait) & done; wait"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).timeout(short()).kill_grace(Duration::ZERO);
    let capture = command.own_group().capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    let group = capture.pid.to_string();
    watchdog::until("no process of the group is left", || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        let mut fields = stats.filter_map(|stat| Some(stat.rsplit_once(')')?.1.to_owned()));
        !fields.any(|fields| {
            let fields: Vec<&str> = fields.split_whitespace().collect();
            fields[0] != "Z" && fields[2] == group
        })
    });
}

/// Each is found by its parent and is outside of the group that is killed as a whole.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_stop_reaches_more_descendants_than_this_process_may_have_handles() {
    const SLEEPERS: usize = 150;
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let new = rustix::process::Rlimit { current: Some(100), maximum: old.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
    let script = format!("for i in $(seq {SLEEPERS}); do setsid sleep 600 & done; wait");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env(MARK, alive::mark("many")).own_group();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.kill_grace(Duration::ZERO).spawn().unwrap();
    watchdog::until("all sleep", || alive::marked(MARK, "many").len() > SLEEPERS);
    child.stop().unwrap();
    watchdog::until("no process is left", || alive::marked(MARK, "many").is_empty());
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_child_of_another_user_is_given_up_with_an_error() {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    if !is_root() {
        return skipped(Need::Root, "a set-user-id program needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = dir.path().join("sleep");
    fs::copy("/bin/sleep", &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755)).unwrap();
    // SAFETY: numbers; this process runs nothing but this test.
    assert_eq!(unsafe { libc::setresuid(54321, 54321, 0) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresuid(54321, 54321, 54321) }, 0);
    let mut command = Command::new(&tool);
    // Nobody here can end it, and it has to outlast both times on a busy machine.
    command.arg(pace::seconds(20).as_secs().to_string()).timeout(short()).kill_grace(short());
    let start = Instant::now();
    match command.capture() {
        Err(error) => {
            assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
            assert!(error.to_string().starts_with("cannot stop "), "{error}");
            assert!(start.elapsed() >= short() * 2);
        }
        // The temp folder may be mounted nosuid: then we may kill the child.
        Ok(capture) => assert_eq!(capture.outcome, Outcome::TimedOut),
    }
}

#[isolated_test]
fn a_stop_signal_during_the_start_does_not_hang_the_parent() {
    // A group of our own, in which SIGTSTP rains while children are started in it. This
    // process itself ignores nothing and is stopped with them; a helper outside continues it.
    let script = "import os, signal, sys, time
target = int(sys.argv[1])
while not os.path.exists(sys.argv[2]):
    try:
        os.killpg(target, signal.SIGTSTP)
        time.sleep(0.0005)
        os.killpg(target, signal.SIGCONT)
    except ProcessLookupError:
        break
    time.sleep(0.0005)
os.killpg(target, signal.SIGCONT)
";
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skipped(Need::Program("python3"), "python3 is not here");
    }
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::setpgid(0, 0) }, 0);
    let dir = tempfile::tempdir().unwrap();
    let enough = dir.path().join("enough");
    let mut sender = Command::new("python3");
    sender.args(["-c", script, &std::process::id().to_string()]).arg(&enough).own_session();
    let sender = sender.spawn().unwrap();
    for _ in 0..pace::rounds(200, 20) {
        assert!(Command::new("true").status().unwrap().success());
    }
    fs::write(&enough, "").unwrap();
    assert!(sender.wait().unwrap().success());
}

#[watched_test]
fn a_relative_directory_is_inside_the_new_root() {
    if !is_root() {
        return skipped(Need::Root, "changing the root directory needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("work")).unwrap();
    let mut command = Command::new(TRUE);
    command.chroot(dir.path()).current_dir("no-such-dir-in-there");
    let error = command.status().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CurrentDirMissing { .. }), "{error}");
    // Resolved in the new root and not in ours: there the program is missing.
    let error = command.current_dir("work").status().unwrap_err();
    assert!(!matches!(error.kind(), ErrorKind::CurrentDirMissing { .. }), "{error}");
}

#[watched_test]
fn absurd_handle_numbers_are_errors_and_possible_ones_work() {
    let null = || fs::File::open("/dev/null").unwrap();
    let number = pipewright::Handle::from(null()).number() as i32;
    let mut command = Command::new("true");
    command.inherit_fd_as(null(), i32::MAX).inherit_fd_as(null(), number);
    let error = command.status().unwrap_err();
    assert!(error.to_string().contains("cannot pass it inherit[0]"), "{error}");
    assert!(!std::thread::panicking());
    // The highest possible number, while another source has to be moved away.
    // SAFETY: all zeroes is a limit.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: a live struct.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let highest = (limit.rlim_cur - 1) as i32;
    let file = null();
    let taken = pipewright::Handle::from(file.try_clone().unwrap());
    let taken_number = taken.number() as i32;
    let mut command = Command::new("true");
    command.inherit_fd_as(taken, highest).inherit_fd_as(file, taken_number);
    assert!(command.status().unwrap().success());
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_change_of_user_does_not_make_us_undumpable() {
    if !is_root() {
        return skipped(Need::Root, "changing the user needs root");
    }
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert!(Command::new("true").uid(65534).status().unwrap().success());
                }
            });
        }
    });
    // SAFETY: asks only.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
}

#[isolated_test]
fn a_forked_process_has_helpers_of_its_own() {
    let run = || {
        Command::new("true")
            .kill_on_parent_exit(pipewright::Scope::Child)
            .status()
            .map(|it| it.success())
    };
    assert!(run().unwrap());
    drop(puppet(["wait=0.05"]).spawn().unwrap());
    // SAFETY: the child below calls nothing that another thread could have locked: the
    // other threads of this process are idle by then.
    #[expect(clippy::disallowed_methods, reason = "tests a fork, as a daemon makes it")]
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let fine = run().is_ok_and(|success| success);
        // SAFETY: ends the copy without running the test harness's exit handlers.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let mut status = 0;
    #[expect(clippy::disallowed_methods, reason = "a child that we did not start as a command")]
    // SAFETY: a live number.
    let waited = unsafe { libc::waitpid(forked, &raw mut status, 0) };
    assert_eq!((waited, status), (forked, 0));
}

#[watched_test]
fn exec_merges_its_streams_too() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "hostile::execs_a_program_with_merged_streams",
        "--exact",
        "--nocapture",
        "--ignored",
    ]);
    let capture = command.env("PIPEWRIGHT_EXEC", "1").capture().unwrap();
    assert!(capture.stdout.ends_with("out err"), "{capture:?}");
}

/// Runs in the process that the test above starts.
#[watched_test]
#[ignore = "replaces the test program: only for exec_merges_its_streams_too"]
fn execs_a_program_with_merged_streams() {
    assert!(std::env::var_os("PIPEWRIGHT_EXEC").is_some());
    let mut command = Command::new("sh");
    panic!("{}", command.args(["-c", "printf 'out '; printf err >&2"]).merge_stderr().exec());
}

#[cfg(target_os = "linux")]
#[isolated_test(limit = Duration::from_secs(60))]
fn a_group_of_zombies_that_nobody_reaps_is_not_waited_for() {
    // This process adopts orphans and does not reap them, as a careless init.
    // SAFETY: numbers; this process runs nothing but this test.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let (_, capture) = in_time(later(), |limit, done| {
        let mut command = puppet(["spawn=wait=600", done, "wait=600"]);
        command.own_group().timeout(limit).kill_grace(Duration::from_secs(600));
        command.capture().unwrap()
    });
    assert_eq!(capture.status.terminating_signal(), Some(Signal::TERM));
    let orphan = capture.stderr.trim().parse().unwrap();
    watchdog::until("it is a zombie, and still in the group", || alive::is_zombie(orphan));
}
