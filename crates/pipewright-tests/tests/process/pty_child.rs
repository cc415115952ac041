//! A spawned child on a terminal: typing, reading, resizing, and the terminal's settings.

use std::io::{Read as _, Write as _};

use pipewright::{Child, Command, PipeReader, Pty, PtySize};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{count, watchdog};

use super::pty::{SIZE, shell};
use super::puppet;

/// Reads until the text has come, and returns everything up to its end.
#[track_caller]
pub(super) fn read_until(reader: &PipeReader, text: &str) -> String {
    let mut all = Vec::with_capacity(4096);
    loop {
        let so_far = String::from_utf8_lossy(&all);
        if let Some(at) = so_far.find(text) {
            return so_far[..at + text.len()].to_owned();
        }
        let so_far = so_far.into_owned();
        all.reserve(4096);
        assert_ne!(reader.read_spare(&mut all).unwrap(), 0, "never {text:?} after {so_far:?}");
    }
}

/// Starts a child, and returns it with a reader and a writer of its terminal.
fn start(mut command: Command) -> (Child, PipeReader, pipewright::PipeWriter) {
    let child = command.spawn().unwrap();
    let pty = child.pty().unwrap();
    let (reader, writer) = (pty.reader().unwrap(), pty.writer().unwrap());
    (child, reader, writer)
}

fn pty(child: &Child) -> &Pty {
    child.pty().unwrap()
}

#[watched_test]
fn typed_text_is_echoed_and_read() {
    let (child, reader, mut writer) = start(shell("read line; echo \"got $line\""));
    writer.write_all(b"hello\n").unwrap();
    assert_eq!(read_until(&reader, "got hello\r\n"), "hello\r\ngot hello\r\n");
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn the_reader_finds_the_end_after_the_last_byte() {
    let (child, mut reader, _writer) = start(puppet(["out-bytes=100000"]).pty(SIZE).owned());
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == super::pty::flood_on_a_terminal(100_000));
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn a_resize_is_seen_by_the_child() {
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done";
    let (child, reader, _writer) = start(shell(script));
    read_until(&reader, "ready\r\n");
    assert_eq!(pty(&child).window_size().unwrap(), SIZE);
    let size = PtySize { rows: 50, cols: 132 };
    pty(&child).resize(size).unwrap();
    read_until(&reader, "50 132\r\n");
    assert_eq!(pty(&child).window_size().unwrap(), size);
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn an_interrupt_reaches_the_foreground_job() {
    let script = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.02; done";
    let (child, reader, _writer) = start(shell(script));
    read_until(&reader, "ready\r\n");
    pty(&child).send_interrupt().unwrap();
    read_until(&reader, "interrupted\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[watched_test]
fn the_end_of_the_input_can_be_typed() {
    let (child, reader, mut writer) = start(Command::new("cat").pty(SIZE).owned());
    writer.write_all(b"one\n").unwrap();
    read_until(&reader, "one\r\none\r\n");
    pty(&child).send_eof().unwrap();
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn echo_can_be_switched_off() {
    let child = shell("read line; echo \"got $line\"").spawn().unwrap();
    assert!(pty(&child).echoes().unwrap());
    pty(&child).set_echo(false).unwrap();
    assert!(!pty(&child).echoes().unwrap());
    pty(&child).writer().unwrap().write_all(b"secret\n").unwrap();
    assert_eq!(child.read_all_text().unwrap().stdout, "got secret\r\n");
}

#[watched_test]
fn a_full_input_does_not_block_a_control_character() {
    let (child, _reader, _writer) = start(puppet(["wait=600"]).pty(SIZE).owned());
    let full = error_when_full(pty(&child));
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Types until nothing more fits, and returns the error.
fn error_when_full(pty: &Pty) -> std::io::Error {
    pty.set_echo(false).unwrap();
    let writer = pty.writer().unwrap();
    loop {
        // A line with its end: the terminal drops what exceeds a line without one.
        if let Err(error) = writer.try_write(&[b"x".repeat(1000), b"\n".to_vec()].concat()) {
            return error;
        }
    }
}

#[watched_test]
fn output_is_read_by_the_verbs_of_the_child() {
    let child = puppet(["out-bytes=50000", "exit=2"]).pty(SIZE).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout == super::pty::flood_on_a_terminal(50_000));
    assert_eq!(output.status.code(), Some(2));
    let child = puppet(["lines=2"]).pty(SIZE).spawn().unwrap();
    let lines: Vec<_> = child.read_all_lines().unwrap().map(|line| line.unwrap().text).collect();
    assert_eq!(lines, ["line 0", "line 1"]);
}

#[watched_test]
fn tasks_type_and_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let child = puppet(["cat"]).pty(SIZE).spawn().unwrap();
        pty(&child).set_echo(false).unwrap();
        let mut writer = pty(&child).writer().unwrap().into_async().unwrap();
        let mut reader = pty(&child).reader().unwrap().into_async().unwrap();
        for round in 0..100 {
            let line = format!("line {round}\n");
            writer.write_all(line.as_bytes()).await.unwrap();
            let mut back = vec![0; line.len() + 1];
            reader.read_exact(&mut back).await.unwrap();
            assert_eq!(String::from_utf8(back).unwrap(), line.replace('\n', "\r\n"));
        }
        pty(&child).send_eof().unwrap();
        assert!(child.wait_async().await.unwrap().success());
        assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 0);
    });
}

#[isolated_test]
fn a_spawned_child_leaves_no_handle() {
    let one = || {
        let (child, mut reader, writer) = start(puppet(["out=x"]).pty(SIZE).owned());
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(child.wait().unwrap().success());
        drop(writer);
    };
    one();
    let before = count::handles_at_rest();
    for _ in 0..20 {
        one();
        let error = Command::new("/no/such/program").pty(SIZE).spawn().unwrap_err();
        assert!(matches!(error.kind(), pipewright::ErrorKind::NotFound { .. }));
    }
    watchdog::until("all handles are closed", || count::handles_at_rest() == before);
}
