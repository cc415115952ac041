//! Promise 4: nothing leaks: 10,000 runs, with errors mixed in, leave the same handle count, no
//! zombie, flat memory.

use std::time::Duration;

use pipewright::{Command, ErrorKind, Limit, Outcome, Stdio};
use pipewright_tests::{count, isolate, watchdog};

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

#[test]
fn nothing_leaks_in_ten_thousand_runs_with_errors_mixed_in() {
    isolate::isolated(
        "p04_nothing_leaks::nothing_leaks_in_ten_thousand_runs_with_errors_mixed_in",
        || {
            let _watch = watchdog::watch_for(Duration::from_secs(600));
            // The first runs make what stays: a stack, a thread for dropped children.
            (0..100).for_each(one_run);
            let settled = || {
                watchdog::until("dropped children are reaped", || count::children().is_empty());
                watchdog::until("the reaper has gone to rest", || count::threads() <= 3);
                (count::handles(), count::rss_bytes())
            };
            let (handles, memory) = settled();
            (0..10_000).for_each(one_run);
            let (handles_after, memory_after) = settled();
            assert_eq!(handles_after, handles, "handles");
            assert_eq!(count::zombies(), Vec::<u32>::new());
            let grown = memory_after.saturating_sub(memory);
            assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
        },
    );
}
