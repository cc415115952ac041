//! The light handle on a child that it started, or on a process that was opened by its pid.

use std::time::{Duration, Instant};

use pipewright::{CancelToken, Child, Command, ErrorKind, Outcome, ProcessHandle, Signal, Stdio};
use pipewright_os::process::open::{Opened, ProcessState};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
#[cfg(unix)]
use pipewright_tests::skip::is_root;
use pipewright_tests::skip::{Need, is_forced_off, kernel, skipped};
use pipewright_tests::{count, pace, watchdog};

#[cfg(target_os = "linux")]
use crate::hostile::{child_with_pid, pid_is_taken};
use crate::{ended_by, printed_pid, puppet};

fn short() -> Duration {
    pace::millis(50)
}

#[cfg(unix)]
#[watched_test]
fn every_kind_of_exit_is_reported() {
    let process = ProcessHandle::start(&mut puppet(["exit=42"])).unwrap();
    let end = process.wait().unwrap();
    assert_eq!((end.status.unwrap().code(), end.outcome), (Some(42), Some(Outcome::Exited)));
    assert!(!end.was_killed());
    assert_eq!(process.wait().unwrap(), end, "again and again");
    assert_eq!(process.try_wait().unwrap(), Some(end));
    assert_eq!(process.wait_or_kill_on_timeout(Duration::ZERO).unwrap(), end);

    let process = puppet(["wait=600"]).start().unwrap();
    assert!(process.signal(Signal::TERM).unwrap());
    let end = process.wait().unwrap();
    ended_by(end.status.unwrap(), Signal::TERM);
    assert_eq!(end.outcome, Some(Outcome::Signaled));
}

#[cfg(unix)]
#[watched_test]
fn a_wait_with_a_limit_leaves_the_process_running() {
    let process = puppet(["wait=600"]).start().unwrap();
    let start = Instant::now();
    assert_eq!(process.try_wait_for(short()).unwrap(), None);
    assert!(start.elapsed() >= short());
    assert_eq!(process.try_wait().unwrap(), None);
    assert!(alive::is_running(process.pid()));
    assert!(process.kill().unwrap());
    // Longer than any timeout.
    let end = process.try_wait_for(Duration::MAX).unwrap().unwrap();
    ended_by(end.status.unwrap(), Signal::KILL);
    assert_eq!(end.outcome, Some(Outcome::Signaled), "this wait has killed nobody");
    assert!(!process.kill().unwrap());
    assert!(!process.signal(Signal::TERM).unwrap());
}

#[cfg(unix)]
#[watched_test]
fn an_unreaped_process_takes_no_signal() {
    let process = puppet(["exit=3"]).start().unwrap();
    watchdog::until("it is a zombie", || alive::is_zombie(process.pid()));
    assert!(!process.kill().unwrap());
    assert_eq!(process.wait().unwrap().status.unwrap().code(), Some(3));
}

#[watched_test]
fn a_timeout_kills_and_is_reported() {
    let process = puppet(["ignore=TERM", "wait=600"]).start().unwrap();
    let start = Instant::now();
    let end = process.wait_or_kill_on_timeout(short()).unwrap();
    assert!(start.elapsed() >= short());
    assert!(end.was_killed());
    assert_eq!(end.outcome, Some(Outcome::TimedOut));
    ended_by(end.status.unwrap(), Signal::KILL);

    let process = puppet(["exit=0"]).start().unwrap();
    let end = process.wait_or_kill_on_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!((end.outcome, end.was_killed()), (Some(Outcome::Exited), false));
}

#[watched_test]
fn a_cancel_kills_and_is_reported() {
    let token = CancelToken::new();
    let process = puppet(["wait=600"]).start().unwrap();
    let end = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| process.wait_or_kill_on_cancel(&token).unwrap());
        assert_eq!(process.try_wait_for(short()).unwrap(), None);
        token.cancel();
        waiter.join().unwrap()
    });
    assert_eq!((end.outcome, end.was_killed()), (Some(Outcome::Cancelled), true));

    // Cancelled before: killed at once. Ended before: not killed.
    let process = puppet(["wait=600"]).start().unwrap();
    let end = process.wait_or_kill_on_cancel(&token).unwrap();
    assert_eq!(end.outcome, Some(Outcome::Cancelled));
    let process = puppet(["exit=7"]).start().unwrap();
    process.wait().unwrap();
    let end = process.wait_or_kill_on_cancel(&token).unwrap();
    assert_eq!((end.outcome, end.status.unwrap().code()), (Some(Outcome::Exited), Some(7)));
}

#[cfg(unix)]
#[watched_test]
fn a_forwarded_signal_is_not_a_cancel() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for is_task in [false, true] {
        let (token, process) = (CancelToken::new(), puppet(["wait=600"]).start().unwrap());
        token.pass_on(Signal::USR1);
        let end = match is_task {
            true => runtime.block_on(process.wait_or_kill_on_cancel_async(&token)).unwrap(),
            false => process.wait_or_kill_on_cancel(&token).unwrap(),
        };
        ended_by(end.status.unwrap(), Signal::USR1);
        assert_eq!(end.outcome, Some(Outcome::Signaled));
    }
}

#[watched_test]
fn threads_wait_while_another_kills() {
    let process = puppet(["wait=600"]).start().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| process.wait().unwrap())).collect();
        let timed = scope.spawn(|| process.try_wait_for(Duration::from_secs(600)).unwrap());
        assert!(process.kill().unwrap());
        for waiter in waiters {
            ended_by(waiter.join().unwrap().status.unwrap(), Signal::KILL);
        }
        ended_by(timed.join().unwrap().unwrap().status.unwrap(), Signal::KILL);
    });
}

#[watched_test]
fn a_child_becomes_a_handle() {
    let mut child = puppet(["out=hello", "wait=600"]).stdout(Stdio::piped()).spawn().unwrap();
    let (pid, stdout) = (child.id(), child.stdout.take().unwrap());
    let process = ProcessHandle::from(child);
    assert_eq!(process.pid(), pid);
    let mut output = Vec::with_capacity(64);
    while output.len() < 5 {
        assert_ne!(stdout.read_spare(&mut output).unwrap(), 0);
    }
    assert_eq!((output.as_slice(), process.try_wait().unwrap()), (&b"hello"[..], None));
    assert!(process.kill().unwrap());
    ended_by(process.wait().unwrap().status.unwrap(), Signal::KILL);
}

#[watched_test]
fn options_that_need_our_streams_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("started");
    let touch = format!("touch={}", mark.display());
    let words = |change: &dyn Fn(&mut Command) -> &mut Command| {
        let mut command = puppet([&touch]);
        change(&mut command);
        let [start, forget] = [command.start().map(drop), command.start_and_forget().map(drop)]
            .map(|result| {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::InvalidInput);
                error.to_string()
            });
        assert_eq!(start, forget);
        start
    };
    let through = " would pass through this process: use a file, a handle, null or inherit";
    let said = words(&|command| command.stdin(Stdio::piped()));
    assert!(said.ends_with(&format!("\": its stdin{through}")), "{said}");
    assert!(words(&|command| command.stdin(Stdio::bytes("x"))).ends_with(through));
    let reader = || Stdio::reader(std::io::empty());
    assert!(words(&|command| command.stdin(reader())).ends_with(through));
    let said = words(&|command| command.stdout(Stdio::piped()));
    assert!(said.ends_with(&format!("\": its stdout{through}")), "{said}");
    let said = words(&|command| command.stderr(Stdio::tee()));
    assert!(said.ends_with(&format!("\": its stderr{through}")), "{said}");
    let alone = "a timeout or cancel token needs a call that waits: use `spawn` or `status`";
    assert!(words(&|command| command.timeout(short())).ends_with(alone));
    assert!(words(&|command| command.cancel(&CancelToken::new())).ends_with(alone));
    assert!(!mark.exists(), "it was started");

    // Files and handles are the child's own business.
    let log = dir.path().join("log");
    let mut command = puppet(["out=1", "err=2"]);
    let process = command.stdout(Stdio::create(&log)).merge_stderr().start().unwrap();
    assert!(process.wait().unwrap().status.unwrap().success());
    assert_eq!(std::fs::read_to_string(log).unwrap(), "12");
}

#[isolated_test]
fn a_dropped_handle_leaves_a_running_process_and_no_zombie() {
    let before = count::handles();
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let wait = format!("wait-for-file={}", go.display());
    let process = puppet([wait]).start().unwrap();
    let pid = process.pid();
    drop(process);
    assert!(alive::is_running(pid));
    std::fs::write(&go, b"").unwrap();
    watchdog::until("it is reaped", || count::children().is_empty());
    watchdog::until("its handles are closed", || count::handles() == before);
}

#[cfg(unix)]
#[isolated_test]
fn a_status_reaped_by_other_code_is_found_or_reported_lost() {
    let reap_all = || {
        loop {
            #[expect(clippy::disallowed_methods, reason = "imitates careless code")]
            // SAFETY: no place for the status.
            let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
            if pid < 0 {
                // The child has not started yet or is reaped: polls again.
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    };
    std::thread::spawn(reap_all);
    let check = |result: pipewright::Result<pipewright::ProcessEnd>, code| match result {
        Ok(end) => assert_eq!(end.status.unwrap().code(), code, "the kernel kept it"),
        Err(error) => assert_eq!(error.kind(), &ErrorKind::StatusLost, "{error}"),
    };
    for _ in 0..20 {
        let process = puppet(["wait=0.01", "exit=42"]).start().unwrap();
        check(process.wait(), Some(42));
        assert!(!process.kill().unwrap(), "it is gone");
        let process = puppet(["exit=43"]).start().unwrap();
        let limit = Duration::from_secs(60);
        check(process.wait_or_kill_on_timeout(limit), Some(43));
        let process = puppet(["wait=600"]).start().unwrap();
        check(process.wait_or_kill_on_timeout(Duration::from_millis(1)), None);
    }
}

/// Returns true if this build can open processes; reports it if not.
fn can_open() -> bool {
    let can = !is_forced_off("pidfd");
    if !can {
        skipped(Need::Pidfd, "processes are only opened as pidfds");
    }
    can
}

/// Returns true if the kernel keeps the status of a reaped process (Linux 6.15 and later).
fn status_is_kept() -> bool {
    kernel() >= (6, 15)
}

/// Starts a shell that prints the pid of a puppet with these acts, and reaps it. Both are killed when the shell is
/// dropped.
fn parent_of(acts: &str) -> (Child, u32) {
    let script = format!("{} {acts} 0<&- & echo $! >&2; wait; cat", env!("CARGO_BIN_EXE_puppet"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::piped());
    command.own_group().kill_on_drop();
    let mut parent = command.spawn().unwrap();
    let pid = printed_pid(&mut parent);
    (parent, pid)
}

#[cfg(unix)]
#[watched_test]
fn a_process_that_is_not_our_child_can_be_waited_for() {
    if !can_open() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let (parent, pid) = parent_of(&format!("wait-for-file={} exit=5", go.display()));
    let process = ProcessHandle::open(pid).unwrap();
    assert_eq!(process.pid(), pid);
    assert_eq!(process.try_wait().unwrap(), None);
    assert_eq!(process.try_wait_for(short()).unwrap(), None);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| process.wait().unwrap());
        std::fs::write(&go, b"").unwrap();
        waiter.join().unwrap();
    });
    assert!(!process.signal(Signal::TERM).unwrap(), "it has ended");
    if status_is_kept() {
        let status = || process.wait().unwrap().status;
        watchdog::until("its parent has reaped it", || status().is_some());
        let end = process.wait().unwrap();
        assert_eq!((status().unwrap().code(), end.outcome), (Some(5), Some(Outcome::Exited)));
    } else {
        skipped(Need::PidfdInfo, "this kernel does not keep the status of a reaped process");
    }
    drop(parent);
}

#[cfg(unix)]
#[watched_test]
fn a_process_that_is_not_our_child_can_be_killed() {
    if !can_open() {
        return;
    }
    let (_parent, pid) = parent_of("wait=600");
    let process = ProcessHandle::open(pid).unwrap();
    let end = process.wait_or_kill_on_timeout(short()).unwrap();
    assert_eq!((end.outcome, end.was_killed()), (Some(Outcome::TimedOut), true));
    assert!(end.status.is_none_or(|status| status.signal() == Some(9)));

    let (_parent, pid) = parent_of("wait=600");
    let process = ProcessHandle::open(pid).unwrap();
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| process.wait_or_kill_on_cancel(&token).unwrap());
        token.cancel();
        assert_eq!(waiter.join().unwrap().outcome, Some(Outcome::Cancelled));
    });
    assert!(!process.kill().unwrap());
}

#[cfg(unix)]
#[watched_test]
fn an_unreaped_zombie_is_reported_without_a_status() {
    if !can_open() {
        return;
    }
    let mut command = puppet(["spawn=exit=5", "eat-all"]);
    let mut parent = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = printed_pid(&mut parent);
    watchdog::until("it is a zombie", || alive::is_zombie(pid));
    let process = ProcessHandle::open(pid).unwrap();
    for end in [process.wait().unwrap(), process.try_wait().unwrap().unwrap()] {
        assert_eq!((end.status, end.outcome), (None, None), "only its parent could tell");
    }
    let end = process.wait_or_kill_on_timeout(Duration::ZERO).unwrap();
    assert_eq!((end.outcome, end.was_killed()), (None, false));
    assert!(!process.kill().unwrap());
    assert!(alive::is_zombie(pid), "it is not ours to reap");
    assert!(parent.wait().unwrap().success());
}

#[cfg(unix)]
#[watched_test]
fn a_later_reap_can_be_waited_for() {
    if !can_open() {
        return;
    }
    if !status_is_kept() {
        return skipped(
            Need::PidfdInfo,
            "PIDFD_GET_INFO has the status of a reaped process since Linux 6.15",
        );
    }
    let mut command = puppet(["spawn-and-reap=exit=5"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut parent = command.kill_on_drop().spawn().unwrap();
    let pid = printed_pid(&mut parent);
    watchdog::until("it is a zombie", || alive::is_zombie(pid));
    let opened = Opened::open(pid).unwrap();
    assert_eq!(opened.state().unwrap(), ProcessState::StatusUnknown);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| opened.wait_for_reap(Duration::MAX));
        std::thread::park_timeout(short());
        assert!(!waiting.is_finished(), "it is not reaped yet");
        drop(parent.stdin.take());
        waiting.join().unwrap();
    });
    match opened.state().unwrap() {
        ProcessState::Ended(ended) => {
            assert_eq!((ended.status.code(), ended.usage), (Some(5), None))
        }
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[isolated_test]
fn our_own_child_is_reaped_and_its_status_returned() {
    if !can_open() {
        return;
    }
    // A child object of other code: of the standard library.
    let mut theirs = std::process::Command::new(env!("CARGO_BIN_EXE_puppet"));
    let mut theirs = theirs.arg("exit=6").spawn().unwrap();
    let process = ProcessHandle::open(theirs.id()).unwrap();
    let end = process.wait().unwrap();
    assert_eq!((end.status.unwrap().code(), end.outcome), (Some(6), Some(Outcome::Exited)));
    assert_eq!(count::children(), Vec::<u32>::new());
    assert_eq!(process.wait().unwrap(), end);
    assert!(theirs.wait().is_err(), "it was waited for");

    // A child of ours, with two handles: either may get its status.
    let child = puppet(["wait=600"]).spawn().unwrap();
    let process = ProcessHandle::open(child.id()).unwrap();
    assert!(process.kill().unwrap());
    ended_by(process.wait().unwrap().status.unwrap(), Signal::KILL);
    match child.wait() {
        Ok(status) => assert_eq!(status.signal(), Some(9)),
        Err(error) => assert_eq!(error.kind(), &ErrorKind::StatusLost),
    }
    drop(child);
    assert_eq!(count::children(), Vec::<u32>::new());
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn an_opened_pid_that_is_reused_is_never_signalled() {
    if !can_open() {
        return;
    }
    let ended = puppet(["exit=0"]).spawn().unwrap();
    let opened = ProcessHandle::open(ended.id()).unwrap();
    let started = puppet(["exit=0"]).start().unwrap();
    ended.wait().unwrap();
    started.wait().unwrap();
    for (handle, pid) in [(&opened, ended.id()), (&started, started.pid())] {
        let Some(unrelated) = child_with_pid(pid, &["wait=600"]) else {
            return pid_is_taken();
        };
        assert!(!handle.kill().unwrap(), "it is gone, and the call reports that");
        assert!(!handle.signal(Signal::TERM).unwrap());
        let end = handle.wait_or_kill_on_timeout(Duration::ZERO).unwrap();
        assert!(!end.was_killed());
        // A wrong signal would have been delivered before this later one.
        assert!(unrelated.signal(Signal::CONT).unwrap());
        assert!(alive::is_running(unrelated.id()));
        unrelated.kill().unwrap();
        ended_by(unrelated.wait().unwrap(), Signal::KILL);
    }
}

#[cfg(unix)]
#[watched_test]
fn pids_of_no_process_are_refused() {
    for pid in [0, i32::MAX as u32 + 1, u32::MAX] {
        let error = ProcessHandle::open(pid).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
        let words = format!("cannot open process \"{pid}\": no process can have that number");
        assert_eq!(error.to_string(), words);
        assert_eq!(error.program(), pid.to_string().as_str());
    }
    if !can_open() {
        return;
    }
    let ended = puppet(["exit=0"]).spawn().unwrap();
    ended.wait().unwrap();
    match ProcessHandle::open(ended.id()) {
        Err(error) => assert_eq!(error.kind(), &ErrorKind::NoSuchProcess, "{error}"),
        Ok(_) => skipped(Need::Luck, "its number is another's already"),
    }
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_thread_id_is_not_a_process() {
    if !can_open() {
        return;
    }
    let error = std::thread::spawn(|| {
        let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_ne!(number, std::process::id());
        ProcessHandle::open(number).unwrap_err()
    });
    let error = error.join().unwrap();
    assert_eq!(error.kind(), &ErrorKind::NoSuchProcess, "{error}");
}

#[cfg(unix)]
#[isolated_test]
fn a_process_of_another_user_can_be_waited_for_but_not_signalled() {
    if !can_open() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "a process of another user needs root");
    }
    let mut child = puppet(["eat-all", "exit=4"]).stdin(Stdio::piped()).spawn().unwrap();
    let _end = KillOnDrop(child.id());
    // SAFETY: numbers; this process runs nothing but this test.
    assert_eq!(unsafe { libc::setuid(54321) }, 0);
    let process = ProcessHandle::open(child.id()).unwrap();
    for error in [
        process.signal(Signal::TERM).unwrap_err(),
        process.kill().unwrap_err(),
        process.wait_or_kill_on_timeout(Duration::ZERO).unwrap_err(),
    ] {
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
        let pid = child.id();
        let words = format!("cannot signal process \"{pid}\": permission denied (os error 1)");
        assert_eq!(error.to_string(), words);
    }
    assert_eq!(process.try_wait().unwrap(), None);
    drop(child.stdin.take());
    assert_eq!(process.wait().unwrap().status.unwrap().code(), Some(4));
}

/// Runs only where the tests do without pidfds; `refused` disables them elsewhere.
#[watched_test]
fn without_pidfds_open_is_unsupported_and_children_still_work() {
    if !is_forced_off("pidfd") {
        return;
    }
    let process = puppet(["wait=600"]).start().unwrap();
    let error = ProcessHandle::open(process.pid()).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unsupported);
    let words = "a process can only be opened as a pidfd, and this machine refuses those";
    assert!(error.to_string().ends_with(words), "{error}");
    let end = process.wait_or_kill_on_timeout(short()).unwrap();
    assert_eq!((end.outcome, end.status.unwrap().signal()), (Some(Outcome::TimedOut), Some(9)));
}

#[isolated_test]
fn a_dropped_handle_leaves_nothing_behind() {
    if !can_open() {
        return;
    }
    let before = (count::handles(), count::threads());
    let child = puppet(["eat-all"]).stdin(Stdio::piped()).spawn().unwrap();
    for _ in 0..100 {
        let process = ProcessHandle::open(child.id()).unwrap();
        assert_eq!(process.try_wait_for(Duration::from_micros(10)).unwrap(), None);
    }
    assert!(child.wait().unwrap().success(), "nobody has reaped or ended it");
    drop(child);
    // Windows: the thread that waits for tasks stays a moment (`PIPEWRIGHT_FORCE=async`).
    let now = || (count::handles(), count::threads());
    watchdog::until("nothing is left", || now() == before);
}

/// A reused pid is never signalled.
#[cfg(target_os = "linux")]
mod reused_pids {
    use pipewright::Signal;
    use pipewright_test_macros::{isolated_test, watched_test};
    use pipewright_tests::alive;

    use super::super::hostile::{child_with_pid, pid_is_taken};
    use super::super::puppet;

    #[isolated_test]
    fn a_reused_pid_is_never_signalled() {
        let ended = puppet(["exit=0"]).own_group().spawn().unwrap();
        ended.wait().unwrap();
        let Some(unrelated) = child_with_pid(ended.id(), &["wait=600"]) else {
            return pid_is_taken();
        };
        assert_eq!(unrelated.id(), ended.id());
        assert!(!ended.signal(Signal::KILL).unwrap(), "it is gone, and the call reports that");
        ended.kill().unwrap();
        drop(ended);
        // A wrong signal would have been delivered before this later one.
        assert!(unrelated.signal(Signal::CONT).unwrap());
        assert_eq!(unrelated.try_wait().unwrap(), None);
        assert!(alive::is_running(unrelated.id()));
        unrelated.kill().unwrap();
        assert_eq!(unrelated.wait().unwrap().signal(), Some(9));
    }

    #[watched_test]
    fn a_signal_to_an_ended_child_is_an_error() {
        let child = puppet(["exit=0"]).spawn().unwrap();
        child.wait().unwrap();
        assert!(!child.signal(Signal::TERM).unwrap());
        child.kill().unwrap();
    }
}
