//! Many commands at once, on one thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pipewright::{CancelToken, Command, ErrorKind, Outcome, Stdio, run_all};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_async, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{alternating, ended_by, flood, puppet};

const MARK: &str = "PIPEWRIGHT_RUN_ALL_TEST";

#[watched_test]
fn results_come_in_the_order_of_the_commands() {
    let commands = (0..40).map(|code| puppet([format!("out={code}"), format!("exit={code}")]));
    let captures = run_all(commands).concurrency(7).captures();
    assert_eq!(captures.len(), 40);
    for (code, capture) in captures.into_iter().enumerate() {
        let capture = capture.unwrap();
        assert_eq!(
            (capture.stdout, capture.stderr, capture.status.code()),
            (code.to_string(), String::new(), Some(code as i32))
        );
    }
}

#[watched_test]
fn results_come_in_the_order_of_exits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: usize| dir.path().join(name.to_string());
    // Each continues when the result of the one after it was returned.
    let commands = (0..4).map(|index| puppet([format!("wait-for-file={}", path(index).display())]));
    let mut ends = run_all(commands).concurrency(4).as_they_end();
    for index in (0..4).rev() {
        std::fs::write(path(index), b"").unwrap();
        let (ended, result) = ends.next().unwrap();
        assert_eq!((ended, result.unwrap().success()), (index, true));
    }
    assert!(ends.next().is_none());
}

#[watched_test]
fn no_more_than_the_concurrency_limit_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let started = || std::fs::read_dir(dir.path()).unwrap().count();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("three have started", || started() == 3);
            std::fs::write(&go, b"").unwrap();
        });
        let commands = (0..10).map(|index| {
            let mark = dir.path().join(index.to_string());
            let acts = ["touch=", "wait-for-file="];
            puppet([
                format!("{}{}", acts[0], mark.display()),
                format!("{}{}", acts[1], go.display()),
            ])
        });
        // A fourth would be counted, and the others would wait forever.
        let captures = run_all(commands).concurrency(3).captures();
        assert!(captures.into_iter().all(|capture| capture.unwrap().success()));
    });
    assert_eq!(started(), 11);
}

#[watched_test]
fn large_output_of_many_children_arrives_whole() {
    let commands = (0..12).map(|index| match index % 3 {
        0 => puppet(["out-bytes=3000000", "err-bytes=10"]),
        1 => puppet(["alternate=2000000"]),
        _ => puppet(["cat"]).stdin(Stdio::bytes(flood(1_000_000))).owned(),
    });
    for (index, result) in run_all(commands).concurrency(12).as_they_end() {
        let capture = result.unwrap();
        let expected = match index % 3 {
            0 => flood(3_000_000),
            1 => alternating(2_000_000),
            _ => flood(1_000_000),
        };
        assert!(capture.stdout == String::from_utf8_lossy(&expected), "command {index}");
        assert_eq!((capture.outcome, capture.stdin_unread), (Outcome::Exited, 0));
    }
}

#[watched_test]
fn each_command_keeps_its_options_and_errors_stop_no_other() {
    let commands = [
        puppet(["out=x", "wait=600"]).timeout(Duration::from_millis(1)).owned(),
        Command::new("no-such-program"),
        puppet(["out=hello"]).limit(pipewright::Limit::fail(1)).owned(),
        puppet(["exit=3"]),
        puppet(["out-hex=ff"]).strict_utf8().owned(),
        puppet(["out=last"]),
    ];
    let mut captures = run_all(commands).concurrency(2).captures().into_iter();
    let mut next = || captures.next().unwrap();
    assert_eq!(next().unwrap().outcome, Outcome::TimedOut);
    assert!(matches!(next().unwrap_err().kind(), ErrorKind::NotFound { .. }));
    assert_eq!(next().unwrap().outcome, Outcome::LimitExceeded);
    assert_eq!(next().unwrap().status.code(), Some(3));
    assert!(matches!(next().unwrap_err().kind(), ErrorKind::InvalidUtf8 { .. }));
    assert_eq!(next().unwrap().stdout, "last");
    assert!(captures.next().is_none());
    assert!(run_all(Vec::<Command>::new()).captures().is_empty());
}

#[watched_test]
fn a_start_error_is_returned_before_the_next_start() {
    let endless = std::iter::repeat_with(|| Command::new("no-such-program"));
    let ends: Vec<_> = run_all(endless).concurrency(2).as_they_end().take(3).collect();
    assert_eq!(ends.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(ends.iter().all(|(_, end)| end.is_err()));
}

#[watched_test]
fn stop_on_failure_stops_the_others() {
    let first = |failing: Command| {
        let mut waits = puppet(["out=so far", "wait=600"]);
        waits.env(MARK, alive::mark("fast"));
        [waits, failing, puppet(["exit=9"])]
    };
    for failing in [puppet(["exit=3"]), Command::new("no-such-program")] {
        let captures = run_all(first(failing)).concurrency(2).fail_fast().captures();
        assert_eq!(captures.len(), 2, "the third was not started");
        let stopped = captures.into_iter().next().unwrap().unwrap();
        assert_eq!(stopped.outcome, Outcome::Cancelled);
        ended_by(stopped.status, pipewright::Signal::TERM);
        assert!(alive::marked(MARK, "fast").is_empty());
    }
}

#[watched_test]
fn a_cancel_stops_all_and_starts_no_more() {
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("three run", || alive::marked(MARK, "cancel").len() == 3);
            token.cancel();
        });
        let commands =
            (0..9).map(|_| puppet(["wait=600"]).env(MARK, alive::mark("cancel")).owned());
        let captures = run_all(commands).concurrency(3).cancel(&token).captures();
        assert_eq!(captures.len(), 3);
        assert!(captures.into_iter().all(|it| it.unwrap().outcome == Outcome::Cancelled));
    });
    // Cancelled stays cancelled: nothing is started.
    assert!(run_all([puppet(["exit=0"])]).cancel(&token).captures().is_empty());
}

#[cfg(unix)]
#[watched_test]
fn a_signal_is_passed_on_to_all() {
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("both run", || alive::marked(MARK, "signal").len() == 2);
            token.pass_on(pipewright::Signal::USR1);
        });
        let commands =
            (0..2).map(|_| puppet(["wait=600"]).env(MARK, alive::mark("signal")).owned());
        for capture in run_all(commands).concurrency(2).cancel(&token).captures() {
            ended_by(capture.unwrap().status, pipewright::Signal::USR1);
        }
    });
}

#[isolated_test]
fn a_dropped_iterator_leaves_no_process() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let before = count::handles();
    let others = (0..5)
        .map(|_| puppet(["spawn=wait=600", "wait=600"]).env(MARK, alive::mark("drop")).owned());
    let mut ends = run_all(others.chain([puppet(["exit=0"])])).concurrency(6).as_they_end();
    assert_eq!(ends.next().unwrap().0, 5);
    drop(ends);
    watchdog::until("no process is left", || alive::marked(MARK, "drop").is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before + 1);
}

#[isolated_test(limit = Duration::from_secs(300))]
fn many_idle_children_take_one_thread() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "without pidfds a child takes a thread");
    }
    let crowd_size = pace::rounds(256, 48);
    let (token, taken) = (CancelToken::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let commands = (0..crowd_size).map(|_| {
                // Started before anything else is done.
                taken.fetch_add(1, Ordering::SeqCst);
                puppet(["wait=600"])
            });
            run_all(commands).concurrency(crowd_size).cancel(&token).captures()
        });
        let threads = count::threads();
        // Windows keeps no list of children.
        let are_there = || count::children().len() == crowd_size || cfg!(windows);
        let is_there = || taken.load(Ordering::SeqCst) == crowd_size && are_there();
        // Not `until`, which gives up after half a minute: Wine starts six a second.
        while !is_there() {
            thread::park_timeout(Duration::from_millis(20));
        }
        // Windows: one waits for the handles of all tasks (`PIPEWRIGHT_FORCE=async`), and the system has one
        // in its pool for each 63 handles: of the end and both streams of each child.
        let of_tasks = usize::from(cfg!(windows) && is_forced_async());
        let of_pool = if cfg!(windows) { (3 * crowd_size).div_ceil(63) } else { 0 };
        let more = count::threads() - threads;
        assert!(more <= of_tasks + of_pool, "{more} more: the one that runs them was there before");
        token.cancel();
        assert_eq!(crowd.join().unwrap().len(), crowd_size);
    });
    watchdog::until("every child is reaped", || count::children().is_empty());
}

#[cfg(unix)]
#[isolated_test]
fn concurrency_is_bounded_by_the_handle_limit() {
    if is_forced_async() {
        return skipped(
            Need::BlockingVerbs,
            "tasks wait by another call, and with a handle more for each",
        );
    }
    // Each has three handles, for its exit and its two streams, but up to twice as many things to wait for: also its input,
    // the shared token, and more.
    const CROWD: usize = 100;
    let token = CancelToken::new();
    let room = (count::handles() + 3 * CROWD + 32) as u64;
    let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let new = rustix::process::Rlimit { current: Some(room), maximum: old.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
    let commands = (0..CROWD).map(|index| puppet([format!("out={index}")]).cancel(&token).owned());
    let captures = run_all(commands).concurrency(CROWD).captures();
    for (index, capture) in captures.into_iter().enumerate() {
        assert_eq!(capture.unwrap().stdout, index.to_string());
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn children_that_end_while_others_are_started_keep_no_handles_until_then() {
    const CROWD: usize = 96;
    let has_ended = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    let before = count::handles();
    let most = std::cell::Cell::new(0);
    let commands = (0..CROWD).map(|index| {
        watchdog::until("all so far have ended", || count::children().iter().all(has_ended));
        most.set(most.get().max(count::handles()));
        puppet([format!("out={index}")])
    });
    let captures = run_all(commands).concurrency(CROWD).captures();
    for (index, capture) in captures.into_iter().enumerate() {
        assert_eq!(capture.unwrap().stdout, index.to_string());
    }
    // Three for each, if no exit was handled before the last start.
    let most = most.get();
    assert!(most < before + CROWD, "{most}, and {before} before");
}
