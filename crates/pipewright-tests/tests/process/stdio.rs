//! Sources and targets of a child's streams; the modes of their pipes; handles of our own.

use std::fs::{self, File};
use std::io::{self, Read, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
#[cfg(unix)]
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::AtomicUsize;
#[cfg(unix)]
use std::sync::atomic::Ordering::SeqCst;
#[cfg(unix)]
use std::time::Duration;

#[cfg(unix)]
use pipewright::{ChildStdout, PipeReader};
use pipewright::{Command, HandleKind, Mode, PipeOptions, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
#[cfg(unix)]
use pipewright_tests::skip::is_forced_off;
use pipewright_tests::skip::{Need, skipped};

use crate::{flood, puppet};

#[watched_test]
fn merged_streams_keep_their_exact_order() {
    let acts = ["out=1", "err=2", "out=3", "err=4", "err=5", "out=6"];
    let capture = puppet(acts).merge_stderr().capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("123456", ""));
    assert_eq!(capture.stderr_bytes, None);
}

#[watched_test]
fn pipes_of_the_crate_os_pipe_are_stdio() {
    let (reader, mut writer) = os_pipe::pipe().unwrap();
    let (mut output, to) = os_pipe::pipe().unwrap();
    let mut command = puppet(["cat"]);
    let child = command.stdin(reader).stdout(to).spawn().unwrap();
    drop(command);
    writer.write_all(b"through both").unwrap();
    drop(writer);
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through both");
    assert!(child.wait().unwrap().success());
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

#[cfg(target_os = "linux")]
fn kind(owner: impl Into<pipewright::Handle>) -> HandleKind {
    owner.into().kind().unwrap()
}

/// Returns a block device of this machine that we may open.
#[cfg(target_os = "linux")]
fn block_device() -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    fs::read_dir("/sys/class/block").ok()?.flatten().find_map(|entry| {
        let path = fs::canonicalize(std::path::Path::new("/dev").join(entry.file_name())).ok()?;
        rustix::fs::open(path, OFlags::PATH, Mode::empty()).ok()
    })
}

#[cfg(target_os = "linux")]
#[watched_test]
fn every_kind_of_handle_is_named() {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    assert_eq!(kind(File::create(&path).unwrap()), HandleKind::File);
    assert_eq!(kind(File::open(dir.path()).unwrap()), HandleKind::Directory);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    // Not through std, which removes the access mode from custom flags: in musl's definition O_PATH is part of it.
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
    let link_itself = rustix::fs::open(&link, flags, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(kind(link_itself), HandleKind::Symlink);
    assert_eq!(kind(File::open(&link).unwrap()), HandleKind::File);
    assert_eq!(kind(File::open("/dev/null").unwrap()), HandleKind::CharDevice);
    assert_eq!(kind(UnixStream::pair().unwrap().0), HandleKind::Socket);
    assert_eq!(kind(TcpListener::bind("127.0.0.1:0").unwrap()), HandleKind::Socket);
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    assert_eq!((kind(reader), kind(writer)), (HandleKind::Pipe, HandleKind::Pipe));
    let us = rustix::process::getpid();
    match rustix::process::pidfd_open(us, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => assert_eq!(kind(pidfd), HandleKind::Unknown),
        Err(error) => skipped(Need::Pidfd, error),
    }
    match block_device() {
        Some(device) => assert_eq!(kind(device), HandleKind::BlockDevice),
        None => skipped(Need::BlockDevice, "there is no block device here"),
    }
    let names: Vec<String> = [
        HandleKind::File,
        HandleKind::Pipe,
        HandleKind::Socket,
        HandleKind::CharDevice,
        HandleKind::Directory,
        HandleKind::Symlink,
        HandleKind::BlockDevice,
        HandleKind::Unknown,
    ]
    .map(|kind| kind.to_string())
    .to_vec();
    let words = "file pipe socket char device directory symlink block device unknown";
    assert_eq!(names.join(" "), words);
}

#[cfg(unix)]
#[watched_test]
fn the_handles_of_a_childs_streams_are_pipes_and_null() {
    let text = puppet(["handles"]).read().unwrap();
    assert_eq!(text, "0 char device\n1 pipe\n2 pipe");
    assert_eq!(pipewright::null().unwrap().kind().unwrap(), HandleKind::CharDevice);
}

#[watched_test]
fn null_is_empty_and_swallows_everything() {
    let mut null = File::from(pipewright::null().unwrap());
    null.write_all(&[7; 100_000]).unwrap();
    let mut text = String::new();
    assert_eq!(null.read_to_string(&mut text).unwrap(), 0);
}

#[watched_test]
fn a_pipe_has_at_least_the_requested_capacity() {
    for capacity in [1, 4096, 100_000, 1 << 20] {
        let options =
            PipeOptions { write: Mode::Async, capacity: Some(capacity), ..PipeOptions::default() };
        let (mut reader, writer) = match pipewright::pipe(options) {
            Ok(pipe) => pipe,
            // pipe(7): a user above the soft limit for all pipes gets no pipe of that size.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skipped(Need::Root, "this user may not have larger pipes");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let chunk = vec![7; 4096];
        let mut held = 0;
        loop {
            match writer.try_write(&chunk) {
                Ok(count) => held += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(held >= capacity, "{held} of {capacity}");
        assert_eq!(reader.available().unwrap(), held);
        match writer.unread() {
            Ok(unread) => assert_eq!(unread, held),
            // Windows counts bytes that a reader waits for as read, and macOS does not count.
            Err(error) if !cfg!(target_os = "linux") => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            }
            Err(error) => panic!("{error}"),
        }
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), held);
    }
}

#[cfg(unix)]
#[watched_test]
fn the_mode_of_an_end_is_private_and_try_calls_never_block() {
    for read in [Mode::Sync, Mode::Async] {
        for write in [Mode::Sync, Mode::Async] {
            let options = PipeOptions { read, write, ..PipeOptions::default() };
            let (reader, writer) = pipewright::pipe(options).unwrap();
            let nothing = reader.try_read_spare(&mut Vec::with_capacity(1)).unwrap_err();
            while writer.try_write(&[7; 5000]).is_ok() {}
            let full = writer.try_write(&[7; 5000]).unwrap_err();
            assert_eq!([nothing.kind(), full.kind()], [io::ErrorKind::WouldBlock; 2]);
            for fd in [reader.as_fd(), writer.as_fd()] {
                let flags = rustix::fs::fcntl_getfl(fd).unwrap();
                assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{read:?}, {write:?}");
            }
        }
    }
}

#[watched_test]
fn an_async_end_returns_would_block_and_a_sync_end_waits() {
    let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
    let (reader, writer) = pipewright::pipe(options).unwrap();
    let mut buffer = Vec::with_capacity(16);
    let error = reader.try_read_spare(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(writer.try_write(b"now").unwrap(), 3);
    assert_eq!(reader.try_read_spare(&mut buffer).unwrap(), 3);
    assert_eq!(buffer, b"now");

    // The blocking calls wait on either kind of end.
    for read in [Mode::Sync, Mode::Async] {
        let options = PipeOptions { read, ..PipeOptions::default() };
        let (mut reader, mut writer) = pipewright::pipe(options).unwrap();
        let text = std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let mut text = [0; 5];
                reader.read_exact(&mut text).unwrap();
                text
            });
            // The thread sleeps in the read or in the wait before it, or is not there yet.
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            assert!(!waiting.is_finished());
            writer.write_all(b"later").unwrap();
            waiting.join().unwrap()
        });
        assert_eq!(&text, b"later");
    }
}

#[cfg(unix)]
#[watched_test]
fn an_end_given_to_a_child_blocks() {
    let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: None };
    let (reader, writer) = pipewright::pipe(options).unwrap();
    for fd in [OwnedFd::from(reader), OwnedFd::from(writer)] {
        let flags = rustix::fs::fcntl_getfl(&fd).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "a child could not use it");
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn the_consoles_are_our_own_standard_handles() {
    let target = |number: i64| fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
    let consoles = [pipewright::console_in(), pipewright::console_out(), pipewright::console_err()];
    for (number, console) in consoles.into_iter().enumerate() {
        let console = console.unwrap();
        assert!(console.number() > 2, "a copy");
        assert_eq!(target(console.number()), target(number as i64));
    }
    // Closed handles cause errors, not panics.
    drop(fs::File::from(pipewright::null().unwrap()));
    // SAFETY: this process runs nothing but this test.
    assert_eq!(unsafe { libc::close(0) }, 0);
    assert_eq!(pipewright::console_in().unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[watched_test]
fn a_childs_stdout_can_be_our_stderr() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["stdio::writes_to_stderr_of_the_parent", "--exact", "--nocapture", "--ignored"]);
    let capture = command.env("PIPEWRIGHT_EXEC", "1").stdin(Stdio::null()).capture().unwrap();
    assert!(capture.stderr.contains("said by the grandchild"), "{capture:?}");
    assert!(!capture.stdout.contains("said by the grandchild"), "{capture:?}");
}

/// Runs in the process that the test above starts.
#[watched_test]
#[ignore = "writes to the terminal: only for a_childs_stdout_can_be_our_stderr"]
fn writes_to_stderr_of_the_parent() {
    assert!(std::env::var_os("PIPEWRIGHT_EXEC").is_some());
    let mut command = puppet(["out=said by the grandchild"]);
    assert!(command.stdout(pipewright::console_err().unwrap()).status().unwrap().success());
}

/// A child may begin with the handles of this process instead of copies: see the crate's `start/linux/clone.rs`.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_path_may_name_a_handle_of_this_process() {
    use std::os::fd::AsRawFd as _;

    // From the second start on, nothing has to be found out any more.
    assert!(puppet(["exit=0"]).status().unwrap().success());
    let program = File::open("/bin/true").unwrap();
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    assert!(Command::new(&path).status().unwrap().success());
    assert!(
        Command::new(&path).output().unwrap().success(),
        "one that gets copies closes it early"
    );
    assert!(Command::new(&path).contain(pipewright::Contain::Tree).output().unwrap().success());
    let dir = tempfile::tempdir().unwrap();
    let opened = File::open(dir.path()).unwrap();
    let mut command = Command::new("pwd");
    command.arg("-P").current_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let expected = fs::canonicalize(dir.path()).unwrap();
    assert_eq!(command.read().unwrap(), expected.to_str().unwrap());
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn handles_of_this_process_stay_open_whatever_a_child_closes() {
    use std::os::fd::AsRawFd as _;

    let files: Vec<File> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
    let before = pipewright::open_handles().unwrap().len();
    for _ in 0..3 {
        let listed = Command::new("ls").arg("/proc/self/fd").read().unwrap();
        // Three streams, and the directory that it reads.
        assert_eq!(listed.lines().count(), 4, "{listed}");
        Command::new("no-such-program").status().unwrap_err();
        let (mut high, given) = pipewright::pipe(PipeOptions::default()).unwrap();
        let given = pipewright::Handle::from(given);
        assert!(given.number() > i64::from(files[199].as_raw_fd()));
        assert!(Command::new("echo").arg("a").stdout(given).status().unwrap().success());
        let mut text = String::new();
        high.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\n");
    }
    assert!(files.iter().all(|file| file.metadata().is_ok()));
    assert_eq!(pipewright::open_handles().unwrap().len(), before);
}
