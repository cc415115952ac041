//! Children that end with their handle.

use pipewright::{Command, ProcessHandle, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{count, watchdog};

use super::{printed_pid, puppet};

/// Waits until all of these processes are killed.
#[track_caller]
fn all_are_killed(pids: &[u32]) {
    watchdog::until("all of them are killed", || pids.iter().all(|pid| !alive::is_running(*pid)));
}

#[isolated_test]
fn a_dropped_child_is_killed_and_reaped() {
    let before = count::handles();
    for _ in 0..20 {
        let mut command = puppet(["ignore=TERM", "wait=600"]);
        let child = command.stdin(Stdio::piped()).kill_on_drop().spawn().unwrap();
        let pid = child.id();
        drop(child);
        all_are_killed(&[pid]);
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() == before);
}

#[watched_test]
fn the_kill_reaches_below_the_child() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let mut command = puppet(["spawn=wait=600", "wait=600"]);
    let mut child = command.stderr(Stdio::piped()).kill_on_drop().spawn().unwrap();
    let pids = [child.id(), printed_pid(&mut child)];
    let _clean = KillOnDrop(pids[1]);
    drop(child);
    all_are_killed(&pids);
}

#[cfg(unix)]
#[watched_test]
fn the_kill_reaches_the_group() {
    // The middle process has exited, so that only the group leads to the last.
    let acts = "spawn=wait=600";
    let script = format!("{} {acts} >&2; exec sleep 600", env!("CARGO_BIN_EXE_puppet"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stderr(Stdio::piped()).own_group().kill_on_drop();
    let mut child = command.spawn().unwrap();
    let pids = [child.id(), printed_pid(&mut child)];
    let _clean = KillOnDrop(pids[1]);
    drop(child);
    all_are_killed(&pids);
}

#[cfg(unix)]
#[watched_test]
fn dropped_lines_and_handles_kill_too() {
    let mut lines = puppet(["out=ready\n", "wait=600"]).kill_on_drop().lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "ready");
    let pid = lines.pid();
    drop(lines);
    all_are_killed(&[pid]);

    let process = puppet(["wait=600"]).kill_on_drop().start().unwrap();
    let pid = process.pid();
    drop(process);
    all_are_killed(&[pid]);

    // The setting moves with the child.
    let child = puppet(["wait=600"]).kill_on_drop().spawn().unwrap();
    let process = ProcessHandle::from(child);
    assert!(process.signal(Signal::CONT).unwrap());
    let pid = process.pid();
    drop(process);
    all_are_killed(&[pid]);
}

#[watched_test]
fn a_child_that_exited_keeps_its_daemons() {
    let mut command = puppet(["spawn=wait=600", "exit=3"]);
    let mut child = command.stderr(Stdio::piped()).kill_on_drop().spawn().unwrap();
    let daemon = KillOnDrop(printed_pid(&mut child));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(child);
    assert!(alive::is_running(daemon.0));

    // Calls that wait are not changed by it.
    assert_eq!(puppet(["out=x"]).kill_on_drop().read().unwrap(), "x");
}
