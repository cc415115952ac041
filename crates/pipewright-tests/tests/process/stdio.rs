//! Sources and targets of a child's streams.

use std::io::{Read, Write};

use pipewright::{Command, HandleKind, PipeOptions, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};

use super::puppet;

#[watched_test]
fn merged_streams_keep_their_exact_order() {
    let acts = ["out=1", "err=2", "out=3", "err=4", "err=5", "out=6"];
    let capture = puppet(acts).merge_stderr().capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("123456", ""));
    assert_eq!(capture.stderr_bytes, None);
}

#[watched_test]
fn files_are_made_emptied_and_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut command = puppet(["out=one "]);
    command.stdout(Stdio::create(&path));
    assert!(command.status().unwrap().success());
    assert!(command.status().unwrap().success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one ");
    let mut command = puppet(["out=two ", "err=three"]);
    command.stdout(Stdio::append(&path)).merge_stderr();
    let capture = command.capture().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one two three");
    assert_eq!((capture.stdout.as_str(), capture.stdout_bytes), ("", None));
}

#[cfg(unix)]
#[watched_test]
fn any_handle_can_be_stdio() {
    let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let mut command = puppet(["out=pipe"]);
    command.stdout(writer);
    assert!(command.status().unwrap().success());
    // The command still holds the end that it was given.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "pipe");

    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = puppet(["out=socket"]);
    assert!(command.stdout(std::os::fd::OwnedFd::from(theirs)).status().unwrap().success());
    drop(command);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "socket");
}

#[watched_test]
fn null_reads_as_the_end_and_swallows_everything() {
    let mut command = puppet(["cat", "out=x", "err=y", "exit=5"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!((output.stdout_bytes, output.stderr_bytes), (None, None));
}

#[cfg(unix)]
#[isolated_test]
fn a_tee_is_captured_and_passed_through() {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    // SAFETY: this process runs nothing but this test; put back below.
    let saved = unsafe { libc::dup(1) };
    rustix::stdio::dup2_stdout(&writer).unwrap();
    drop(writer);
    let capture = puppet(["out=both ways"]).stdout(Stdio::tee()).capture();
    // SAFETY: the copy made above.
    unsafe { libc::dup2(saved, 1) };
    let mut passed = Vec::with_capacity(100);
    reader.read_spare(&mut passed).unwrap();
    assert_eq!(capture.unwrap().stdout, "both ways");
    assert_eq!(passed, b"both ways");
}

#[cfg(unix)]
#[isolated_test]
fn a_tee_captures_after_its_reader_has_gone() {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    // SAFETY: as above.
    let saved = unsafe { libc::dup(1) };
    rustix::stdio::dup2_stdout(&writer).unwrap();
    drop((reader, writer));
    let capture = puppet(["out-bytes=300000"]).stdout(Stdio::tee()).capture();
    // SAFETY: as above.
    unsafe { libc::dup2(saved, 1) };
    assert_eq!(capture.unwrap().stdout_bytes, Some(300_000));
}

#[cfg(unix)]
#[watched_test]
fn handles_know_their_kind() {
    let kind = |handle: pipewright::Handle| handle.kind().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("file")).unwrap();
    assert_eq!(kind(file.into()), HandleKind::File);
    assert_eq!(kind(std::fs::File::open(dir.path()).unwrap().into()), HandleKind::Directory);
    assert_eq!(kind(pipewright::null().unwrap()), HandleKind::CharDevice);
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    assert_eq!((kind(reader.into()), kind(writer.into())), (HandleKind::Pipe, HandleKind::Pipe));
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(kind(socket.into()), HandleKind::Socket);
    for console in [pipewright::console_in(), pipewright::console_out(), pipewright::console_err()]
    {
        console.unwrap().kind().unwrap();
    }
}

#[watched_test]
fn a_pipe_has_the_capacity_it_was_asked_for() {
    let options = PipeOptions {
        write: pipewright::Mode::Async,
        capacity: Some(256 << 10),
        ..PipeOptions::default()
    };
    let (reader, mut writer) = pipewright::pipe(options).unwrap();
    assert_eq!(writer.try_write(&vec![1; 1 << 20]).unwrap(), 256 << 10);
    let error = writer.try_write(b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(reader.available().unwrap(), 256 << 10);
    writer.flush().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_command_can_be_run_many_times_and_changed_in_between() {
    let mut command = Command::new("echo");
    assert_eq!(command.arg("1").read().unwrap(), "1");
    assert_eq!(command.arg("2").read().unwrap(), "1 2");
}
