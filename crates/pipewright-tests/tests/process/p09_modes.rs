//! Promise 9: the child's handles are synchronous, the parent's asynchronous, and a child that sets
//! O_NONBLOCK does not harm us.

use std::io::Read;

use pipewright::Stdio;
use pipewright_tests::watchdog;

use super::{flood, puppet};

#[cfg(unix)]
fn is_nonblocking(handle: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fcntl_getfl(handle).unwrap().contains(rustix::fs::OFlags::NONBLOCK)
}

#[test]
fn the_childs_handles_are_synchronous() {
    let _watch = watchdog::watch();
    let expected = "blocking\nblocking\nblocking\n";
    assert_eq!(puppet(["modes"]).stdin(Stdio::bytes("x")).capture().unwrap().stdout, expected);
    let mut command = puppet(["modes"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(command.spawn().unwrap().wait_with_output().unwrap().stdout, expected.as_bytes());
}

#[cfg(unix)]
#[test]
fn the_parents_handles_are_asynchronous_and_stdin_is_not() {
    let _watch = watchdog::watch();
    let mut command = puppet(["cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    assert!(is_nonblocking(child.stdout.as_ref().unwrap()));
    assert!(is_nonblocking(child.stderr.as_ref().unwrap()));
    assert!(!is_nonblocking(child.stdin.as_ref().unwrap()), "whoever writes to it may block");
    assert!(child.wait().unwrap().success());
}

#[test]
fn reading_our_end_waits_all_the_same() {
    let _watch = watchdog::watch();
    let mut child = puppet(["wait=0.1", "out=late"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "late");
}

#[cfg(unix)]
#[test]
fn a_child_that_sets_o_nonblock_does_not_harm_us() {
    let _watch = watchdog::watch();
    let acts = ["set-nonblocking", "out=a", "wait=0.05", "out=b", "err=c"];
    let capture = puppet(acts).stdin(Stdio::bytes("unread")).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("ab", "c"));
    let mut child =
        puppet(["set-nonblocking", "wait=0.05", "out=x"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}

#[test]
fn a_stream_that_is_handed_to_another_child_is_synchronous_there() {
    let _watch = watchdog::watch();
    let mut first = puppet(["out-bytes=300000"]).stdout(Stdio::piped()).spawn().unwrap();
    let between = first.stdout.take().unwrap();
    let output = puppet(["modes", "cat"]).stdin(between).output().unwrap();
    let (modes, rest) = output.stdout.split_at(27);
    assert_eq!(modes, b"blocking\nblocking\nblocking\n");
    assert!(rest == flood(300_000));
    assert!(first.wait().unwrap().success());
}
