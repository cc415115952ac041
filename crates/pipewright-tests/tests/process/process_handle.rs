//! The light handle on a child that it started.

use std::time::{Duration, Instant};

use pipewright::{CancelToken, Command, ErrorKind, Outcome, ProcessHandle, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{ended_by, puppet};

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
