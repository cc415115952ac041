//! A capture returns when a grandchild holds the pipe, has everything written before, and reports `held_open`.

use std::time::Instant;

use pipewright::{Capture, Linger, Outcome};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::{pace, watchdog};

use super::{later, puppet};

/// Returns the default linger, with time for a grandchild to start.
fn patient() -> Linger {
    Linger::Settle { quiet: later(), cap: pace::seconds(60) }
}

/// Returns the pid of the grandchild, which `spawn=` writes as the first line of stderr.
fn grandchild(capture: &Capture) -> KillOnDrop {
    KillOnDrop(capture.stderr.lines().next().unwrap().parse().unwrap())
}

#[watched_test]
fn capture_returns_when_a_grandchild_holds_the_pipe() {
    let acts = ["out-bytes=200000", "spawn=wait=600", "out=last words"];
    let capture = puppet(acts).capture().unwrap();
    let holder = grandchild(&capture);
    assert!(capture.held_open);
    assert_eq!(capture.outcome, Outcome::Exited);
    assert_eq!(capture.stdout_bytes, Some(200_010));
    assert!(capture.stdout.ends_with("last words"));
    assert!(alive::is_running(holder.0), "the holder keeps running");
}

#[watched_test]
fn output_of_a_grandchild_is_read_until_it_is_idle() {
    let acts = ["out=early ", "spawn=wait=0.1;out=late ;wait=0.1;out=later;wait=600"];
    let capture = puppet(acts).linger(patient()).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!(capture.stdout, "early late later");
    assert!(capture.held_open);
}

#[watched_test]
fn a_grandchild_that_closes_in_time_is_not_reported() {
    let mut command = puppet(["out=a", "spawn=wait=0.05;out=b"]);
    let capture = command.linger(patient()).capture().unwrap();
    assert_eq!(capture.stdout, "ab");
    assert!(!capture.held_open);
}

#[watched_test]
fn a_flood_that_never_ends_is_cut_at_the_cap() {
    let cap = later() * 2;
    let settle = Linger::Settle { quiet: later(), cap };
    let acts = ["out=start", "spawn=out-bytes=1000000000000"];
    let mut command = puppet(acts);
    let start = Instant::now();
    let capture = command.linger(settle).limit(pipewright::Limit::keep_head(5)).capture().unwrap();
    let _holder = grandchild(&capture);
    assert!(start.elapsed() >= cap);
    assert_eq!((capture.stdout.as_str(), capture.held_open), ("start", true));
}

#[watched_test]
fn stop_at_exit_reads_only_what_is_in_the_pipe() {
    let acts = ["out-bytes=60000", "spawn=wait=600"];
    let capture = puppet(acts).linger(Linger::StopAtExit).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!((capture.stdout_bytes, capture.held_open), (Some(60_000), true));
}

#[cfg(unix)]
#[isolated_test]
fn stop_at_exit_without_a_holder_reads_everything() {
    // Isolated: a child of another test has a copy of the pipe until it executes its program.

    for _ in 0..pace::rounds(50, 10) {
        let mut command = puppet(["out-bytes=300000"]);
        let capture = command.linger(Linger::StopAtExit).capture().unwrap();
        assert_eq!((capture.stdout_bytes, capture.held_open), (Some(300_000), false));
    }
}

/// Runs many short commands on several threads. A child of one has copies of the pipes of the others until it executes its program,
/// which may take long on a busy machine.
fn starts_of_other_threads_hold_nothing(set: impl Fn(&mut pipewright::Command) + Sync) {
    use pipewright_os::base::test_hooks::{Forced, is_forced};

    if is_forced(Forced::NoSharedMemory) {
        // The handle by which such a child reports a failed exec is closed by the exec.
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..pace::rounds(240, 60) {
                    let mut command = puppet(["out=x"]);
                    set(&mut command);
                    let capture = command.linger(Linger::StopAtExit).capture().unwrap();
                    assert_eq!((capture.stdout.as_str(), capture.held_open), ("x", false));
                }
            });
        }
    });
}

#[isolated_test]
fn the_start_of_another_thread_does_not_count_as_a_holder() {
    starts_of_other_threads_hold_nothing(|_| {});
}

#[isolated_test]
fn the_supervisor_of_another_tree_does_not_count_as_a_holder() {
    starts_of_other_threads_hold_nothing(|command| _ = command.contain(pipewright::Contain::Tree));
}

#[watched_test]
fn until_eof_waits_for_the_last_holder() {
    // Longer than the default linger.
    let acts = ["out=a", "spawn=wait=0.6;out=b"];
    let capture = puppet(acts).linger(Linger::UntilEof).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.held_open), ("ab", false));
}

#[watched_test]
fn until_eof_ends_at_the_timeout_with_the_childs_own_status() {
    let mut command = puppet(["out=a", "spawn=wait=600"]);
    let capture = command.linger(Linger::UntilEof).timeout(later()).capture().unwrap();
    let _holder = grandchild(&capture);
    assert_eq!((capture.outcome, capture.held_open), (Outcome::Exited, true));
}

#[cfg(unix)]
#[watched_test]
fn linger_drain_never_sends_sigpipe_to_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| dir.path().join(name).display().to_string());
    // SIGPIPE at its default, so that a write without a reader would end it before it is done.
    let acts =
        format!("spawn=raise=CONT;wait-for-file={go};out-bytes=1000000;touch={done};wait=600");
    let mut command = puppet([acts.as_str()]);
    let capture = command.linger(Linger::StopAtExit).linger_drain().capture().unwrap();
    let _holder = grandchild(&capture);
    assert!(capture.held_open);
    std::fs::write(&go, b"").unwrap();
    watchdog::until("the holder has written all", || std::path::Path::new(&done).exists());
}
