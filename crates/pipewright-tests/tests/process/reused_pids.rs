//! A reused pid is never signalled.

use pipewright::Signal;
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive;

use super::hostile::{child_with_pid, pid_is_taken};
use super::puppet;

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
