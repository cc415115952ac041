//! Modes of pipes: the child's ends block, ours never make us wait, and a child that sets O_NONBLOCK does not
//! harm us.

#[cfg(unix)]
use std::fs::File;
#[cfg(unix)]
use std::io;
use std::io::Read;
#[cfg(unix)]
use std::io::Write;
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
#[cfg(unix)]
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
#[cfg(unix)]
use std::time::Duration;

use pipewright::Stdio;
#[cfg(unix)]
use pipewright::{ChildStdout, Mode, PipeOptions, PipeReader};
use pipewright_test_macros::watched_test;
#[cfg(unix)]
use pipewright_tests::skip::{Need, is_forced_off, skipped};

use super::{flood, puppet};

#[cfg(unix)]
fn is_nonblocking(handle: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(handle).unwrap().contains(rustix::fs::OFlags::NONBLOCK)
}

#[watched_test]
fn the_childs_handles_are_blocking() {
    let expected = "blocking\nblocking\nblocking\n";
    assert_eq!(puppet(["modes"]).stdin(Stdio::bytes("x")).capture().unwrap().stdout, expected);
    let mut command = puppet(["modes"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(command.spawn().unwrap().wait_with_output().unwrap().stdout, expected.as_bytes());
}

/// A call on our end can be kept from waiting, and no other holder of the pipe notices.
#[cfg(unix)]
#[watched_test]
fn the_parents_handles_are_nonblocking_only_for_us() {
    let mut command = puppet(["cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let [stdout, stderr] = [&child.stdout, &child.stderr].map(|end| end.as_ref().unwrap());
    let stdin = child.stdin.as_ref().unwrap();
    for end in [stdout, stderr] {
        let mut buffer = Vec::with_capacity(16);
        let error = end.try_read_spare(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    assert!(!is_nonblocking(stdout) && !is_nonblocking(stderr) && !is_nonblocking(stdin));
    assert!(child.wait().unwrap().success());
}

/// Returns the end of a child's stdout, cloned by every way to hand it on.
#[cfg(unix)]
fn clones_of(end: &ChildStdout) -> [File; 2] {
    let clone = end.try_clone().unwrap();
    [end.as_fd().try_clone_to_owned().unwrap(), OwnedFd::from(clone)].map(File::from)
}

#[cfg(unix)]
#[watched_test]
fn a_clone_of_our_end_of_stdout_waits_for_bytes() {
    for way in 0..2 {
        let mut command = puppet(["eat-all", "out=late"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let ours = child.stdout.take().unwrap();
        // It has been read without blocking, as in a capture.
        let error = ours.try_read_spare(&mut Vec::with_capacity(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut clone = clones_of(&ours).into_iter().nth(way).unwrap();
        assert!(!is_nonblocking(&clone));
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            clone.read_to_string(&mut text).map(|_| text)
        });
        // The thread sleeps in its read, or is not there yet.
        std::thread::park_timeout(Duration::from_millis(20));
        drop(child.stdin.take());
        assert_eq!(reading.join().unwrap().unwrap(), "late");
        assert!(child.wait().unwrap().success());
    }
}

#[cfg(unix)]
#[watched_test]
fn a_clone_of_our_end_of_stdin_waits_for_room() {
    for stdin in [Stdio::piped(), Stdio::piped_async()] {
        let mut command = puppet(["wait=0.05", "cat"]);
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
        let ours = child.stdin.take().unwrap();
        let mut fed = 0;
        // Until it is full, without waiting.
        while let Ok(count) = ours.try_write(&flood(1 << 20)[fed..]) {
            fed += count;
        }
        let mut clones = [
            File::from(ours.as_fd().try_clone_to_owned().unwrap()),
            File::from(OwnedFd::from(ours.try_clone().unwrap())),
        ];
        assert!(!clones.iter().any(is_nonblocking));
        let feeding = std::thread::spawn(move || {
            for (index, clone) in clones.iter_mut().enumerate() {
                let (from, to) = if index == 0 { (fed, 500_000) } else { (500_000, 1 << 20) };
                clone.write_all(&flood(1 << 20)[from..to])?;
            }
            drop(ours);
            io::Result::Ok(())
        });
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap().unwrap();
        assert!(output.stdout == flood(1 << 20));
    }
}

#[cfg(unix)]
#[watched_test]
fn our_pipe_ends_block_for_other_processes() {
    let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: None };
    let (reader, writer) = pipewright::pipe(options).unwrap();
    while writer.try_write(&flood(1 << 16)).is_ok() {}
    let full = reader.available().unwrap();
    assert!(!is_nonblocking(&reader) && !is_nonblocking(&writer));
    // No call of ours blocks, even now that others share both ends.
    assert_eq!(writer.try_write(b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let mut taken = Vec::with_capacity(2 << 20);
    while reader.try_read_spare(&mut taken).is_ok() {}
    assert_eq!(taken.len(), full);
    let mut again = 0;
    while let Ok(count) = writer.try_write(&flood(1 << 16)) {
        again += count;
    }
    assert_eq!(again, full);
    assert!(!is_nonblocking(OwnedFd::from(reader)) && !is_nonblocking(OwnedFd::from(writer)));
}

/// Writes one byte at a time and reads it from `ours` without blocking, unless a thread has taken it from
/// `theirs`, which shares the end.
#[cfg(unix)]
fn race_for_bytes(ours: PipeReader, mut theirs: File, mut writer: File) {
    let taken = Arc::new(AtomicUsize::new(0));
    let reading = std::thread::spawn({
        let taken = Arc::clone(&taken);
        move || {
            while theirs.read(&mut [0])? != 0 {
                taken.fetch_add(1, SeqCst);
            }
            io::Result::Ok(())
        }
    });
    let mut own = Vec::with_capacity(1 << 16);
    for written in 1..=20_000 {
        writer.write_all(b"x").unwrap();
        // A read that waited for a byte that the thread took would wait for ever.
        while own.len() + taken.load(SeqCst) < written {
            if let Err(error) = ours.try_read_spare(&mut own) {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            }
        }
    }
    drop(writer);
    reading.join().unwrap().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_try_read_does_not_block_if_another_reader_takes_the_bytes() {
    if !cfg!(target_os = "linux") || is_forced_off("vmsplice") {
        return skipped(Need::TryRead, "a read follows a poll here, and can block");
    }
    let options = PipeOptions { read: Mode::Async, write: Mode::Sync, capacity: None };
    let (ours, writer) = pipewright::pipe(options).unwrap();
    let theirs = File::from(ours.as_fd().try_clone_to_owned().unwrap());
    race_for_bytes(ours, theirs, OwnedFd::from(writer).into());
}

/// A FIFO opened by its name refuses `RWF_NOWAIT` on every kernel.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_try_read_of_a_fifo_does_not_block_if_another_reader_takes_the_bytes() {
    if is_forced_off("vmsplice") {
        return skipped(Need::TryRead, "a read follows a poll here, and can block");
    }
    let (_folder, path) = fifo();
    let both = File::options().read(true).write(true).open(&path).unwrap();
    let (theirs, writer) =
        (File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap());
    drop(both);
    let ours = PipeReader::from(OwnedFd::from(theirs.try_clone().unwrap()));
    race_for_bytes(ours, theirs, writer);
}

/// `vmsplice` would write to such an end.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_try_read_of_a_fifo_open_for_both_does_not_write_to_it() {
    let (_folder, path) = fifo();
    let mut both = File::options().read(true).write(true).open(&path).unwrap();
    let ours = PipeReader::from(OwnedFd::from(both.try_clone().unwrap()));
    let mut read = Vec::with_capacity(64);
    for _ in 0..3 {
        let error = ours.try_read_spare(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    both.write_all(b"once").unwrap();
    assert_eq!(ours.try_read_spare(&mut read).unwrap(), 4);
    assert_eq!(read, b"once");
    assert_eq!(ours.try_read_spare(&mut read).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[cfg(target_os = "linux")]
fn fifo() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    (folder, path)
}

#[watched_test]
fn a_read_of_our_end_blocks() {
    let mut child = puppet(["wait=0.1", "out=late"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "late");
}

#[cfg(unix)]
#[watched_test]
fn a_child_that_sets_o_nonblock_does_not_harm_us() {
    let acts = ["set-nonblocking", "out=a", "wait=0.05", "out=b", "err=c"];
    let capture = puppet(acts).stdin(Stdio::bytes("unread")).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("ab", "c"));
    let mut child =
        puppet(["set-nonblocking", "wait=0.05", "out=x"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}

#[watched_test]
fn a_stream_given_to_another_child_is_blocking_there() {
    let mut first = puppet(["out-bytes=300000"]).stdout(Stdio::piped()).spawn().unwrap();
    let between = first.stdout.take().unwrap();
    let output = puppet(["modes", "cat"]).stdin(between).output().unwrap();
    let (modes, rest) = output.stdout.split_at(27);
    assert_eq!(modes, b"blocking\nblocking\nblocking\n");
    assert!(rest == flood(300_000));
    assert!(first.wait().unwrap().success());
}
