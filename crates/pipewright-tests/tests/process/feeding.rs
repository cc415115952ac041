//! Input for a child's stdin.

use std::io::{self, Read};

use pipewright::Stdio;
use pipewright_test_macros::watched_test;

use super::{flood, puppet};

#[watched_test]
fn bytes_strings_files_and_readers_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input");
    std::fs::write(&path, "from a file").unwrap();
    let read = |stdin: Stdio| puppet(["cat"]).stdin(stdin).read().unwrap();
    assert_eq!(read(Stdio::bytes("a string")), "a string");
    assert_eq!(read(Stdio::bytes(vec![b'x'; 3])), "xxx");
    assert_eq!(read(Stdio::open(&path)), "from a file");
    assert_eq!(read(std::fs::File::open(&path).unwrap().into()), "from a file");
    assert_eq!(read(Stdio::reader(io::Cursor::new("from a reader"))), "from a reader");
    assert_eq!(read(Stdio::null()), "");
}

#[watched_test]
fn a_reader_of_any_size_is_fed_in_the_same_loop() {
    let input = flood(5_000_000);
    let reader = io::Cursor::new(input.clone());
    let output = puppet(["cat-both"]).stdin(Stdio::reader(reader)).output().unwrap();
    assert!(output.stdout == input && output.stderr == input);
}

#[watched_test]
fn a_failing_input_reader_is_an_error_and_the_child_is_killed() {
    struct FailingReader;
    impl Read for FailingReader {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no tape"))
        }
    }
    let error =
        puppet(["cat", "wait=600"]).stdin(Stdio::reader(FailingReader)).capture().unwrap_err();
    assert!(error.to_string().contains("cannot read the input for "), "{error}");
    assert!(error.to_string().ends_with("no tape"), "{error}");
}

#[watched_test]
fn input_can_be_fed_again_and_again() {
    let mut command = puppet(["cat"]);
    command.stdin(Stdio::bytes("again"));
    for _ in 0..3 {
        assert_eq!(command.read().unwrap(), "again");
    }
}

#[watched_test]
fn unread_input_is_counted_and_is_no_error() {
    let output = puppet(["eat=1000"]).stdin(Stdio::bytes(flood(5000))).output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdin_unread, 4000);
    let output = puppet(["eat=1000000"]).stdin(Stdio::bytes(flood(3_000_000))).output().unwrap();
    assert_eq!(output.stdin_unread, 2_000_000);
}

#[watched_test]
fn a_spawned_child_is_fed_by_the_verb_that_waits() {
    let mut command = puppet(["cat"]);
    command.stdin(Stdio::bytes(flood(500_000))).stdout(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert!(output.stdout == flood(500_000));
    let mut command = puppet(["eat-all", "exit=4"]);
    let child = command.stdin(Stdio::bytes(flood(500_000))).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[watched_test]
fn wait_closes_a_piped_stdin_first() {
    let child = puppet(["cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let mut stdin = child.stdin.as_ref().unwrap();
    let error = io::Write::write(&mut stdin, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
