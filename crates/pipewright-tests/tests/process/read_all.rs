//! A spawned child whose streams are read to their ends.

use std::io::Read;

use pipewright::{Limit, Outcome, Source, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::alive;
use pipewright_tests::pace;

use super::{flood, puppet};

#[watched_test]
fn both_streams_are_drained_while_the_input_is_fed() {
    let input = flood(2_000_000);
    let mut command = puppet(["cat-both", "exit=3"]);
    command.stdin(Stdio::bytes(input.clone())).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().unwrap().read_all_bytes().unwrap();
    assert!(output.stdout == input && output.stderr == input);
    assert_eq!((output.status.code(), output.stdin_unread), (Some(3), 0));
    let mut lines = command.spawn().unwrap().read_all_lines().unwrap();
    let mut bytes = [0, 0];
    for line in lines.by_ref() {
        let line = line.unwrap();
        bytes[line.source as usize] += line.text.chars().count();
    }
    assert!(bytes[Source::Stdout as usize] > 0 && bytes[0] == bytes[1]);
    assert_eq!(lines.finish().unwrap().stderr_bytes, Some(2_000_000));
}

#[watched_test]
fn a_missing_stream_is_empty_and_reported() {
    let mut command = puppet(["out=o\n", "err=e\n"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let text = command.spawn().unwrap().read_all_text().unwrap();
    assert_eq!((text.stdout.as_str(), text.stdout_bytes), ("o\n", Some(2)));
    assert_eq!((text.stderr.as_str(), text.stderr_bytes), ("", None));
    let mut child = command.spawn().unwrap();
    let mut taken = child.stdout.take().unwrap();
    let output = child.read_all_bytes().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stdout_bytes), (&b""[..], None));
    let mut text = String::new();
    taken.read_to_string(&mut text).unwrap();
    assert_eq!(text, "o\n");
    let mut none = puppet(["exit=4"]);
    let mut lines = none.stdout(Stdio::null()).spawn().unwrap().read_all_lines().unwrap();
    assert!(lines.next().is_none());
    assert_eq!(lines.finish().unwrap().status.code(), Some(4));
}

#[watched_test]
fn read_all_follows_the_commands_options() {
    // Long enough for a start on a busy machine.
    let soon = pace::millis(if cfg!(windows) { 3000 } else { 700 });
    let mut command = puppet(["out=partial\n", "wait=600"]);
    command.stdout(Stdio::piped()).timeout(soon);
    let text = command.spawn().unwrap().read_all_text().unwrap();
    assert_eq!((text.stdout.as_str(), text.outcome), ("partial\n", Outcome::TimedOut));
    assert!(!alive::is_running(text.pid));
    let mut lines = command.spawn().unwrap().read_all_lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "partial");
    assert!(lines.next().is_none());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
    let mut command = puppet(["out=12345\n678\n", "wait=600"]);
    command.stdout(Stdio::piped()).limit(Limit::fail(4)).max_line(2);
    let output = command.spawn().unwrap().read_all_bytes().unwrap();
    assert_eq!((output.stdout.as_slice(), output.outcome), (&b"1234"[..], Outcome::LimitExceeded));
    let mut lines = command.spawn().unwrap().read_all_lines().unwrap();
    let line = lines.next().unwrap().unwrap();
    assert_eq!((line.text.as_str(), line.truncated), ("12", true));
    assert_eq!(lines.finish().unwrap().outcome, Outcome::LimitExceeded);
}

#[watched_test]
fn strict_text_errors_have_an_offset() {
    let mut command = puppet(["out-hex=61ff"]);
    command.stdout(Stdio::piped()).strict_utf8();
    let error = command.spawn().unwrap().read_all_text().unwrap_err();
    assert!(error.to_string().ends_with("stdout is not UTF-8 at byte 1"), "{error}");
}
