//! Dropped children leave no zombie and no handle.

use std::time::Duration;

use pipewright::Stdio;
use pipewright_test_macros::isolated_test;
use pipewright_tests::{alive, count, pace, watchdog};

use super::puppet;

#[isolated_test]
fn dropped_children_leave_no_zombie_and_no_handle() {
    let before = count::handles();
    for round in 0..pace::rounds(50, 10) {
        // Some have ended when they are dropped, some end later, some are waited for.
        let mut command = puppet([["exit=0", "wait=0.2"][round % 2]]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        if round % 5 == 0 {
            child.wait().unwrap();
        }
        drop(child);
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("the reaper's own handles are closed", || count::handles() == before);
}

#[isolated_test]
fn a_dropped_child_keeps_running() {
    let dir = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| dir.path().join(name));
    let acts = [format!("wait-for-file={}", go.display()), format!("touch={}", done.display())];
    let child = puppet(acts).spawn().unwrap();
    let pid = child.id();
    drop(child);
    assert!(alive::is_running(pid));
    std::fs::write(&go, b"").unwrap();
    watchdog::until("it has done its work", || done.exists());
    watchdog::until("it is reaped", || alive::state(pid).is_none());
}

#[isolated_test]
fn children_dropped_by_many_threads_are_reaped() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..pace::rounds(20, 4) {
                    drop(puppet(["wait=0.05"]).spawn().unwrap());
                }
            });
        }
    });
    watchdog::until("every child is reaped", || count::children().is_empty());
    let is_idle = || count::threads() <= 3;
    watchdog::until("the reaper has gone to rest", is_idle);
    // The thread starts again for the next one.
    drop(puppet(["wait=0.05"]).spawn().unwrap());
    watchdog::until("the last child is reaped", || count::children().is_empty());
    std::thread::park_timeout(Duration::from_millis(1));
}
