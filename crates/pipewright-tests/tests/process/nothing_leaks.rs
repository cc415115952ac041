//! Nothing leaks: 10,000 runs, some of them errors, leave the same number of handles, no zombie and flat
//! memory; so do 5,000 of streams, pipelines, light handles and trees.

use std::time::Duration;

use pipewright::{
    Command, Contain, ErrorKind, Limit, Outcome, ProcessHandle, Scope, Signal, Stdio,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::{count, pace, watchdog};

use super::{cannot_supervise, ended_by, puppet};

/// Returns the number of runs. Wine starts twelve a second, so three of four runs start nothing there.
fn runs() -> usize {
    pace::rounds(if cfg!(windows) { 2_000 } else { 10_000 }, 400)
}

fn other_runs() -> usize {
    pace::rounds(if cfg!(windows) { 150 } else { 5_000 }, 100)
}

/// Runs one of every ten ways for a run to end.
fn one_run(round: usize) {
    let way = if cfg!(windows) && round % 4 != 0 { round % 3 } else { round / 4 % 10 };
    match way {
        0 => {
            let error = Command::new("no-such-program").capture().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
        }
        1 => {
            let error = puppet(["exit=0"]).current_dir("/no/such/dir").capture().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::CurrentDirMissing { .. }));
        }
        2 => {
            let missing = Stdio::open("/no/such/file");
            let error = puppet(["exit=0"]).stdin(missing).capture().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Io);
        }
        3 => {
            let mut command = puppet(["wait=60"]);
            command.timeout(Duration::ZERO).kill_grace(Duration::ZERO);
            assert_eq!(command.capture().unwrap().outcome, Outcome::TimedOut);
        }
        4 => {
            let output = puppet(["out=hello"]).limit(Limit::fail(1)).output().unwrap();
            assert_eq!(output.outcome, Outcome::LimitExceeded);
        }
        5 => {
            let input = Stdio::bytes(vec![7; 100_000]);
            let output = puppet(["exit=0"]).stdin(input).output().unwrap();
            assert!(output.stdin_unread > 0);
        }
        6 => {
            let mut command = puppet(["cat"]);
            let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            assert!(child.wait().unwrap().success());
        }
        7 => drop(puppet(["exit=0"]).stdout(Stdio::piped()).spawn().unwrap()),
        8 => {
            let child = puppet(["wait=60"]).spawn().unwrap();
            child.kill().unwrap();
            ended_by(child.wait().unwrap(), Signal::KILL);
        }
        _ => {
            let capture = puppet(["out=h", "err=i"]).merge_stderr().capture().unwrap();
            assert_eq!(capture.stdout, "hi");
        }
    }
}

/// Runs one of every ten ways to follow, join, leave and hold children.
fn one_other_run(round: usize, supervised: bool) {
    match round % 10 {
        0 => {
            // Dropped in the middle, while it still writes.
            let mut lines = puppet(["lines=1000000000"]).lines().unwrap();
            assert_eq!(lines.next().unwrap().unwrap().text, "line 0");
        }
        1 => assert!(puppet(["out=a", "err=b"]).events().unwrap().all(|event| event.is_ok())),
        2 => {
            let mut pipeline = puppet(["out=hi", "exit=3"]) | puppet(["cat"]) | puppet(["cat"]);
            let output = pipeline.output().unwrap();
            assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"hi"[..]));
        }
        3 => {
            let error = (puppet(["wait=60"]) | Command::new("no-such")).status().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
        }
        4 => {
            let mut pipeline = puppet(["wait=60"]) | puppet(["wait=60"]);
            pipeline.timeout(Duration::ZERO).kill_grace(Duration::ZERO);
            assert_eq!(pipeline.output().unwrap().outcome, Outcome::TimedOut);
        }
        5 => {
            let handle = ProcessHandle::start(&mut puppet(["exit=5"])).unwrap();
            assert_eq!(handle.wait().unwrap().status.unwrap().code(), Some(5));
            assert!(ProcessHandle::open(0).is_err());
        }
        6 => {
            puppet(["exit=0"]).start_and_forget().unwrap();
            drop(puppet(["wait=60"]).kill_on_drop().spawn().unwrap());
        }
        7 => {
            let child = puppet(["out=hi"]).stdout(Stdio::piped()).spawn().unwrap();
            assert_eq!(child.read_all_text().unwrap().stdout, "hi");
        }
        8 => {
            let mut command = puppet(["leave=wait=60", "exit=0"]);
            assert!(command.contain(Contain::Tree).capture().unwrap().success());
        }
        _ if supervised => {
            let mut command = puppet(["leave=session;wait=60", "exit=7"]);
            command.stderr(Stdio::null()).kill_on_parent_exit(Scope::Tree);
            assert_eq!(command.status().unwrap().code(), Some(7));
            assert!(Command::new("no-such").kill_on_parent_exit(Scope::Tree).status().is_err());
        }
        _ => {}
    }
}

/// Runs some rounds first, which allocate permanent resources (a stack, a thread for dropped children), then the
/// others.
fn leaves_nothing(runs: usize, run: impl Fn(usize)) {
    (0..if cfg!(windows) { 40 } else { 100 }).for_each(&run);
    let settled = || {
        watchdog::until("dropped children are reaped", || count::children().is_empty());
        // The test's, the harness's and the watchdog's; on Windows one more, which starts writes and stays.
        let most = 3 + usize::from(cfg!(windows));
        watchdog::until("the reaper has gone to rest", || count::threads() <= most);
        (count::handles(), count::kept_bytes())
    };
    let (handles, mut memory) = settled();
    // A leak grows with the runs. What the system keeps in between grows once: seen under Wine 10, whose figure is that
    // of all resident pages.
    for attempt in 1.. {
        (0..runs).for_each(&run);
        let (handles_after, memory_after) = settled();
        // Fewer is no leak: the last handle of the first rounds was closed late, seen under Wine 10.
        assert!(handles_after <= handles, "{handles} handles have become {handles_after}");
        assert_eq!(count::zombies(), Vec::<u32>::new());
        let grown = memory_after.saturating_sub(memory);
        if grown < count::KEPT_NOISE_BYTES {
            return;
        }
        assert!(attempt < 3, "memory has grown by {grown} bytes, {attempt} times in a row");
        memory = memory_after;
    }
}

#[isolated_test(limit = Duration::from_secs(600))]
fn nothing_leaks_in_ten_thousand_runs_with_errors_mixed_in() {
    leaves_nothing(runs(), one_run);
}

#[isolated_test(limit = Duration::from_secs(600))]
fn nothing_leaks_from_streams_pipelines_handles_and_trees() {
    let supervised = !cannot_supervise();
    leaves_nothing(other_runs(), |round| one_other_run(round, supervised));
}
