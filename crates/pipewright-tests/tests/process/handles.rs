//! Handles of our own: their kinds, pipes, the null device, the console.

use std::fs::{self, File};
use std::io::{self, Read, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

use pipewright::{Command, HandleKind, Mode, PipeOptions, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, skipped};

use super::puppet;

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
    command.args([
        "handles::writes_to_stderr_of_the_parent",
        "--exact",
        "--nocapture",
        "--ignored",
    ]);
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
