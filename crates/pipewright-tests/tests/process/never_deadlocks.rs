//! Captures never deadlock, for any sizes and order of both streams and stdin.

use pipewright::{Outcome, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::pace;

use super::{alternating, flood, puppet};

/// Sizes around the capacity of a pipe, and far beyond.
const SIZES: [usize; 9] = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 1 << 20, 16 << 20];

// A fork of another test would hold the streams open.
#[isolated_test]
fn never_deadlocks_with_one_stream_after_the_other() {
    for size in SIZES {
        for [first, second] in [["out-bytes", "err-bytes"], ["err-bytes", "out-bytes"]] {
            let acts = [format!("{first}={size}"), format!("{second}={size}")];
            let output = puppet(acts).output().unwrap();
            assert!(output.stdout == flood(size) && output.stderr == flood(size), "{size}");
            assert_eq!((output.outcome, output.held_open), (Outcome::Exited, false));
        }
    }
}

#[watched_test]
fn never_deadlocks_with_streams_that_alternate() {
    let size = 8 << 20;
    let output = puppet([format!("alternate={size}")]).output().unwrap();
    assert!(output.stdout == alternating(size), "stdout");
    assert!(output.stderr == alternating(size), "stderr");
}

#[watched_test]
fn never_deadlocks_while_stdin_is_fed_and_both_streams_answer() {
    for size in SIZES {
        let input = flood(size);
        let output = puppet(["cat-both"]).stdin(Stdio::bytes(input.clone())).output().unwrap();
        assert!(output.stdout == input && output.stderr == input, "{size}");
        assert_eq!(output.stdin_unread, 0);
    }
}

#[watched_test]
fn never_deadlocks_with_a_quarter_of_a_gigabyte_each_way() {
    let input = flood(pace::rounds(256, 32) << 20);
    let output = puppet(["cat"]).stdin(Stdio::bytes(input.clone())).output().unwrap();
    assert!(output.stdout == input);
}

#[watched_test]
fn never_deadlocks_when_the_child_answers_before_it_reads() {
    let input = flood(1 << 20);
    let acts = ["out-bytes=1048576", "err-bytes=1048576", "cat"];
    let output = puppet(acts).stdin(Stdio::bytes(input.clone())).output().unwrap();
    assert!(output.stdout[1 << 20..] == input);
}

#[watched_test]
fn never_deadlocks_when_stdin_is_not_read_at_all() {
    let input = flood(4 << 20);
    let output = puppet(["out=done"]).stdin(Stdio::bytes(input)).output().unwrap();
    assert_eq!(output.stdout, b"done");
    assert_eq!(output.stdin_unread, 4 << 20);
}

#[watched_test]
fn never_deadlocks_when_piped_streams_are_not_read() {
    let mut command = puppet(["alternate=1000000"]);
    let status = command.stdout(Stdio::piped()).stderr(Stdio::piped()).status().unwrap();
    assert!(status.success());
}

#[watched_test]
fn never_deadlocks_when_a_closed_stream_goes_on_beside_an_open_one() {
    // stdout ends long before stderr does, and the child before either is read to its end.
    let output = puppet(["out=x", "err-bytes=3000000"]).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (1, 3_000_000));
}
