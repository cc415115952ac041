//! A timeout kills the tree, reports on time, keeps partial output.

use std::time::{Duration, Instant};

use pipewright::{CancelToken, Capture, Outcome, Signal};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, pace, watchdog};

use super::{ended_by, later, puppet, short, with_time};

/// Returns every pid that the puppet printed, a line each.
fn pids(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[track_caller]
fn none_is_left(capture: &Capture, at_least: usize) {
    let mut all = pids(&capture.stderr);
    all.push(capture.pid);
    assert!(all.len() > at_least, "the puppet printed too few: {all:?}");
    for pid in all {
        assert!(!alive::is_running(pid), "{pid} is left");
    }
}

#[watched_test]
fn a_timeout_keeps_partial_output_and_is_not_an_error() {
    let stdout = with_time(later(), |time| {
        let start = Instant::now();
        let capture = puppet(["out=partial", "wait=600"]).timeout(time).capture().unwrap();
        assert!(start.elapsed() >= time);
        assert!(capture.elapsed >= time);
        assert_eq!(capture.outcome, Outcome::TimedOut);
        ended_by(capture.status, Signal::TERM);
        none_is_left(&capture, 0);
        (!capture.stdout.is_empty()).then_some(capture.stdout)
    });
    assert_eq!(stdout, "partial");
}

#[watched_test]
fn a_timeout_kills_the_children_of_the_child() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let acts = ["spawn=spawn=wait=600;wait=600", "out=here", "wait=600"];
    with_time(later(), |time| {
        let capture = puppet(acts).timeout(time).capture().unwrap();
        assert_eq!((capture.outcome, capture.held_open), (Outcome::TimedOut, false));
        none_is_left(&capture, 0);
        (capture.stdout == "here" && pids(&capture.stderr).len() == 2).then_some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn a_timeout_finds_a_descendant_with_a_strange_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    // Neither UTF-8 nor, read as the rest of the line, the state of a running process.
    let name = OsStr::from_bytes(b"\xff) Z 1 1 (");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    symlink(env!("CARGO_BIN_EXE_puppet"), &file).unwrap();
    let mut command = pipewright::Command::new("sh");
    // It says so once it is executed, and has that name.
    command.args(["-c", r#""$0" out=named wait=600 & echo $! >&2; wait"#]).arg(file);
    with_time(later(), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!((capture.outcome, capture.held_open), (Outcome::TimedOut, false));
        none_is_left(&capture, 0);
        (capture.stdout == "named" && pids(&capture.stderr).len() == 1).then_some(())
    });
}

#[watched_test]
fn a_timeout_kills_the_whole_group() {
    let acts = ["spawn=spawn=wait=600;wait=600", "out=here", "wait=600"];
    with_time(later(), |time| {
        let capture = puppet(acts).own_group().timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        watchdog::until("the group is gone", || {
            pids(&capture.stderr).iter().all(|p| !alive::is_running(*p))
        });
        none_is_left(&capture, 0);
        (capture.stdout == "here" && pids(&capture.stderr).len() == 2).then_some(())
    });
}

#[watched_test]
fn an_orphan_in_the_group_is_killed() {
    // The middle one exits at once: init adopts its child, which only the group still finds.
    let acts = ["spawn=spawn=ignore=TERM;wait=600", "out=here", "wait=600"];
    let mut command = puppet(acts);
    command.own_group().kill_grace(short());
    with_time(later(), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        watchdog::until("the group is gone", || {
            pids(&capture.stderr).iter().all(|p| !alive::is_running(*p))
        });
        none_is_left(&capture, 0);
        (capture.stdout == "here" && pids(&capture.stderr).len() == 2).then_some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn a_child_that_ignores_the_stop_signal_is_killed_after_the_grace() {
    let mut command = puppet(["ignore=TERM", "out=deaf", "wait=600"]);
    with_time(later(), |time| {
        let start = Instant::now();
        let capture = command.timeout(time).kill_grace(short()).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        none_is_left(&capture, 0);
        if capture.stdout != "deaf" {
            return None;
        }
        assert!(start.elapsed() >= time + short());
        ended_by(capture.status, Signal::KILL);
        Some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn a_descendant_that_ignores_the_stop_signal_is_killed_after_the_grace() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let acts = ["spawn=ignore=TERM;out=deaf;wait=600", "wait=600"];
    let mut command = puppet(acts);
    with_time(later(), |time| {
        let capture = command.timeout(time).kill_grace(short()).capture().unwrap();
        ended_by(capture.status, Signal::TERM);
        none_is_left(&capture, 0);
        if capture.stdout != "deaf" || pids(&capture.stderr).len() != 1 {
            return None;
        }
        assert!(capture.elapsed >= time + short());
        Some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn a_stopped_child_is_continued_for_the_stop_signal() {
    let capture = puppet(["raise=STOP", "wait=600"]).timeout(later()).capture().unwrap();
    ended_by(capture.status, Signal::TERM);
}

#[watched_test]
fn without_a_grace_no_stop_signal_is_sent() {
    let mut command = puppet(["ignore=TERM", "wait=600"]);
    let capture = command.timeout(later()).kill_grace(Duration::ZERO).capture().unwrap();
    ended_by(capture.status, Signal::KILL);
}

#[cfg(unix)]
#[watched_test]
fn the_stop_signal_can_be_chosen() {
    let mut command = puppet(["ignore=TERM", "out=x", "wait=600"]);
    let capture = command.timeout(later()).stop_signal(Signal::INT).capture().unwrap();
    ended_by(capture.status, Signal::INT);
}

#[watched_test]
fn a_timeout_of_zero_and_a_deadline_in_the_past_stop_at_once() {
    let capture = puppet(["wait=600"]).timeout(Duration::ZERO).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    let capture = puppet(["wait=600"]).deadline(Instant::now()).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
}

#[watched_test]
fn an_absurdly_long_timeout_never_expires() {
    let mut command = puppet(["exit=3"]);
    let capture = command.timeout(Duration::MAX).idle_timeout(Duration::MAX).capture().unwrap();
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
}

#[watched_test]
fn an_idle_timeout_stops_a_child_and_output_resets_it() {
    let acts = ["out=1", "wait=0.1", "err=2", "wait=0.1", "out=3", "wait=600"];
    with_time(pace::seconds(1), |time| {
        let start = Instant::now();
        let capture = puppet(acts).idle_timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::IdleTimedOut);
        if (capture.stdout.as_str(), capture.stderr.as_str()) != ("13", "2") {
            return None;
        }
        assert!(start.elapsed() >= time + pace::millis(200));
        Some(())
    });
}

#[watched_test]
fn a_cancel_stops_a_child_from_another_thread() {
    let token = CancelToken::new();
    let (remote, start) = (token.clone(), Instant::now());
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    let touch = format!("touch={}", said.display());
    let canceller = std::thread::spawn(move || {
        watchdog::until("it has said something", || said.exists());
        remote.cancel();
    });
    let capture = puppet(["out=so far", &touch, "wait=600"]).cancel(&token).capture().unwrap();
    canceller.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(600));
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::Cancelled, "so far"));
    // Cancelled stays cancelled.
    let capture = puppet(["wait=600"]).cancel(&token).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::Cancelled);
}

#[watched_test]
fn status_and_run_have_timeouts() {
    let status = puppet(["wait=600"]).timeout(short()).status().unwrap();
    ended_by(status, Signal::TERM);
    let error = puppet(["wait=600"]).timeout(short()).run().unwrap_err();
    assert!(error.to_string().contains("failed: timed out after "), "{error}");
}

#[watched_test]
fn a_spawned_child_is_stopped_by_the_wait() {
    let child = puppet(["wait=600"]).timeout(short()).spawn().unwrap();
    ended_by(child.wait().unwrap(), Signal::TERM);
    let mut command = puppet(["out=x", "wait=600"]);
    command.stdout(pipewright::Stdio::piped());
    with_time(short(), |time| {
        let output = command.timeout(time).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.outcome, Outcome::TimedOut);
        (output.stdout == b"x").then_some(())
    });
}
