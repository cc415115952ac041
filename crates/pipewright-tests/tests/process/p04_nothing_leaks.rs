//! Promise 4: nothing leaks: 10,000 runs, with errors mixed in, leave the same handle count, no
//! zombie, flat memory; 5,000 of streams, pipelines, light handles and trees too.

use std::time::Duration;

use pipewright::{Command, Contain, ErrorKind, Limit, Outcome, ProcessHandle, Scope, Stdio};
use pipewright_tests::{count, isolate, watchdog};

use super::cannot_supervise;

/// Runs one of every ten ways for a run to end.
fn one_run(round: usize) {
    let quick = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    };
    match round % 10 {
        0 => {
            let error = Command::new("no-such-program").capture().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
        }
        1 => {
            let error = quick("true").current_dir("/no/such/dir").capture().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::CurrentDirMissing { .. }));
        }
        2 => {
            let error = quick("true").stdin(Stdio::open("/no/such/file")).capture().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Io);
        }
        3 => {
            let mut command = quick("exec sleep 60");
            command.timeout(Duration::ZERO).kill_grace(Duration::ZERO);
            assert_eq!(command.capture().unwrap().outcome, Outcome::TimedOut);
        }
        4 => {
            let mut command = quick("echo hello");
            let output = command.limit(Limit::fail(1)).output().unwrap();
            assert_eq!(output.outcome, Outcome::LimitExceeded);
        }
        5 => {
            let output = quick("exit 0").stdin(Stdio::bytes(vec![7; 100_000])).output().unwrap();
            assert!(output.stdin_unread > 0);
        }
        6 => {
            let child = quick("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            assert!(child.wait().unwrap().success());
        }
        7 => drop(quick("exit 0").stdout(Stdio::piped()).spawn().unwrap()),
        8 => assert_eq!(quick("kill -9 $$").status().unwrap().signal(), Some(9)),
        _ => {
            let capture = Command::new("/bin/echo").arg("hi").merge_stderr().capture().unwrap();
            assert_eq!(capture.stdout, "hi\n");
        }
    }
}

/// Runs one of every ten ways to follow, join, leave and hold children.
fn one_other_run(round: usize, supervised: bool) {
    let quick = |script: &str| Command::new("/bin/sh").args(["-c", script]).take();
    match round % 10 {
        0 => {
            // Left in the middle, while it still writes.
            let mut lines = quick("while echo y; do :; done 2> /dev/null").lines().unwrap();
            assert_eq!(lines.next().unwrap().unwrap().text, "y");
        }
        1 => assert!(quick("echo a; echo b >&2").events().unwrap().all(|event| event.is_ok())),
        2 => {
            let output = (quick("echo hi; exit 3") | quick("cat") | quick("cat")).output().unwrap();
            assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"hi\n"[..]));
        }
        3 => {
            let error = (quick("sleep 60") | Command::new("no-such")).status().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
        }
        4 => {
            let mut pipeline = quick("sleep 60") | quick("sleep 60");
            pipeline.timeout(Duration::ZERO).kill_grace(Duration::ZERO);
            assert_eq!(pipeline.output().unwrap().outcome, Outcome::TimedOut);
        }
        5 => {
            let handle = ProcessHandle::start(&mut quick("exit 5")).unwrap();
            assert_eq!(handle.wait().unwrap().status.unwrap().code(), Some(5));
            assert!(ProcessHandle::open(0).is_err());
        }
        6 => {
            quick("exit 0").start_and_forget().unwrap();
            drop(quick("sleep 60").kill_on_drop().spawn().unwrap());
        }
        7 => {
            let child = quick("echo hi").stdout(Stdio::piped()).spawn().unwrap();
            assert_eq!(child.read_all_text().unwrap().stdout, "hi\n");
        }
        8 => {
            let mut command = quick("sleep 60 > /dev/null 2>&1 & exit 0");
            assert!(command.contain(Contain::Tree).capture().unwrap().success());
        }
        _ if supervised => {
            let mut command = quick("(sleep 60 > /dev/null 2>&1 &) ; exit 7");
            command.kill_on_parent_exit(Scope::Tree);
            assert_eq!(command.status().unwrap().code(), Some(7));
            assert!(Command::new("no-such").kill_on_parent_exit(Scope::Tree).status().is_err());
        }
        _ => {}
    }
}

/// Runs some to make what stays (a stack, a thread for dropped children), then the others.
fn leaves_nothing(runs: usize, run: impl Fn(usize)) {
    let _watch = watchdog::watch_for(Duration::from_secs(600));
    (0..100).for_each(&run);
    let settled = || {
        watchdog::until("dropped children are reaped", || count::children().is_empty());
        watchdog::until("the reaper has gone to rest", || count::threads() <= 3);
        (count::handles(), count::rss_bytes())
    };
    let (handles, memory) = settled();
    (0..runs).for_each(&run);
    let (handles_after, memory_after) = settled();
    assert_eq!(handles_after, handles, "handles");
    assert_eq!(count::zombies(), Vec::<u32>::new());
    let grown = memory_after.saturating_sub(memory);
    assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
}

#[test]
fn nothing_leaks_in_ten_thousand_runs_with_errors_mixed_in() {
    isolate::isolated(
        "p04_nothing_leaks::nothing_leaks_in_ten_thousand_runs_with_errors_mixed_in",
        || leaves_nothing(10_000, one_run),
    );
}

#[cfg(unix)]
#[test]
fn nothing_leaks_of_streams_pipelines_light_handles_and_trees() {
    isolate::isolated(
        "p04_nothing_leaks::nothing_leaks_of_streams_pipelines_light_handles_and_trees",
        || {
            let supervised = !cannot_supervise();
            leaves_nothing(5_000, |round| one_other_run(round, supervised));
        },
    );
}
