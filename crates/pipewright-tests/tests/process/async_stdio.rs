//! This process's own stdio in a task, and as other holders see it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pipewright::{Handle, PipeReader, PipeWriter, stderr_async, stdin_async, stdout_async};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::pace;
use rustix::fs::OFlags;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::async_pipes::poll_once;
use super::async_verbs::one_thread;
use super::flood;
use super::tee::{terminal, with_stdout};

/// Returns a time in which nothing comes.
fn a_while() -> Duration {
    pace::millis(50)
}

fn flags(fd: impl AsFd) -> OFlags {
    rustix::fs::fcntl_getfl(fd).unwrap()
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipewright::pipe(Default::default()).unwrap();
    (reader.into(), writer.into())
}

/// Runs a test with that as stdin, and checks the flags before, during and after it.
fn with_stdin(stdin: impl AsFd, test: impl AsyncFnOnce(&dyn Fn())) {
    let before = flags(&stdin);
    rustix::stdio::dup2_stdin(&stdin).unwrap();
    let is_as_before = || {
        assert_eq!(flags(&stdin), before);
        assert_eq!(flags(io::stdin()), before);
    };
    one_thread().block_on(test(&is_as_before));
    is_as_before();
}

/// Checks everything that all pollable files have in common.
async fn reads_as_it_comes(mut writer: impl io::Write, is_as_before: &dyn Fn()) {
    let mut stdin = stdin_async().unwrap();
    is_as_before();
    // Dropped, with nothing lost.
    assert!(timeout(a_while(), stdin.read(&mut [0; 8])).await.is_err());
    is_as_before();
    writer.write_all(b"one\n").unwrap();
    let mut line = [0; 4];
    stdin.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"one\n");
    is_as_before();

    // Another holder reads the line before we do.
    writer.write_all(b"two\n").unwrap();
    assert_eq!(io::stdin().read(&mut line).unwrap(), 4);
    assert!(poll_once(stdin.read(&mut line)).is_pending());
    assert!(timeout(a_while(), stdin.read(&mut line)).await.is_err());
    writer.write_all(b"six\n").unwrap();
    assert_eq!(stdin.read(&mut line).await.unwrap(), 4);
    assert_eq!(&line, b"six\n");
    is_as_before();
}

#[isolated_test]
fn a_task_reads_a_pipe_without_changing_its_mode() {
    let (reader, writer) = pipe();
    with_stdin(reader, async |is_as_before: &dyn Fn()| {
        let mut writer = File::from(writer);
        reads_as_it_comes(&writer, is_as_before).await;
        let mut stdin = stdin_async().unwrap();
        let feeding = std::thread::spawn(move || writer.write_all(&flood(1_000_000)));
        let mut all = Vec::new();
        stdin.read_to_end(&mut all).await.unwrap();
        feeding.join().unwrap().unwrap();
        assert!(all == flood(1_000_000));
    });
}

#[isolated_test]
fn a_task_reads_a_terminal_without_changing_its_mode() {
    let (screen, inside) = terminal();
    with_stdin(inside, async |is_as_before: &dyn Fn()| {
        let mut screen = File::from(screen);
        reads_as_it_comes(&screen, is_as_before).await;
        // Ctrl-D is an end of file; later input can be read.
        let mut stdin = stdin_async().unwrap();
        screen.write_all(&[4]).unwrap();
        assert_eq!(stdin.read(&mut [0; 8]).await.unwrap(), 0);
        screen.write_all(b"more\n").unwrap();
        assert_eq!(stdin.read(&mut [0; 8]).await.unwrap(), 5);
    });
}

#[isolated_test]
fn a_task_reads_a_socket_without_changing_its_mode() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    with_stdin(ours, async |is_as_before: &dyn Fn()| {
        reads_as_it_comes(theirs, is_as_before).await;
    });
}

#[isolated_test]
fn a_task_reads_a_file_from_its_shared_offset() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&flood(500_000)).unwrap();
    file.seek(io::SeekFrom::Start(1000)).unwrap();
    let shared = file.try_clone().unwrap();
    with_stdin(file, async |is_as_before: &dyn Fn()| {
        let mut stdin = stdin_async().unwrap();
        let mut some = vec![0; 1000];
        stdin.read_exact(&mut some).await.unwrap();
        assert!(some == flood(500_000)[1000..2000]);
        is_as_before();
        assert_eq!((&shared).stream_position().unwrap(), 2000);
        let mut rest = Vec::new();
        stdin.read_to_end(&mut rest).await.unwrap();
        assert!(rest == flood(500_000)[2000..]);
    });
}

#[isolated_test]
fn a_task_finds_the_end_of_null_and_of_a_closed_stdin() {
    with_stdin(File::open("/dev/null").unwrap(), async |_: &dyn Fn()| {
        assert_eq!(stdin_async().unwrap().read(&mut [0; 8]).await.unwrap(), 0);
    });
    // Before: its own descriptors would take the number.
    let runtime = one_thread();
    // SAFETY: nothing here uses the number before it is reopened below.
    unsafe { rustix::io::close(0) };
    runtime.block_on(async {
        assert_eq!(stdin_async().unwrap().read(&mut [0; 8]).await.unwrap(), 0);
    });
    rustix::stdio::dup2_stdin(File::open("/dev/null").unwrap()).unwrap();
}

/// Fills stdout while a thread empties it.
fn writes_as_there_is_room(stdout: &OwnedFd, reader: impl io::Read + Send + 'static) {
    let before = flags(stdout);
    with_stdout(stdout, || {
        one_thread().block_on(async {
            let mut ours = stdout_async().unwrap();
            let mut written = 0;
            let full = timeout(a_while(), async {
                loop {
                    written += ours.write(&flood(1 << 20)[written..]).await.unwrap();
                }
            });
            assert!(full.await.is_err(), "nobody reads");
            assert_eq!(flags(stdout), before);
            let reading = std::thread::spawn(move || {
                let mut all = vec![0; 1 << 20];
                let mut reader = reader;
                reader.read_exact(&mut all).map(|()| all)
            });
            ours.write_all(&flood(1 << 20)[written..]).await.unwrap();
            assert!(reading.join().unwrap().unwrap() == flood(1 << 20));
            assert_eq!(flags(stdout), before);
            ours.shutdown().await.unwrap();
            let refused = ours.write(b"x").await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        });
        io::stdout().write_all(b"").unwrap();
    });
    assert_eq!(flags(stdout), before);
}

#[isolated_test]
fn a_task_writes_to_a_pipe_and_a_socket_without_changing_their_modes() {
    let (reader, writer) = pipe();
    writes_as_there_is_room(&writer, File::from(reader));
    let (ours, theirs) = UnixStream::pair().unwrap();
    writes_as_there_is_room(&ours.into(), theirs);
}

#[isolated_test]
fn a_task_writes_to_a_terminal_without_changing_its_mode() {
    let (screen, inside) = terminal();
    // Raw output: the terminal adds no carriage return.
    let mut settings = rustix::termios::tcgetattr(&inside).unwrap();
    settings.make_raw();
    rustix::termios::tcsetattr(&inside, rustix::termios::OptionalActions::Now, &settings).unwrap();
    writes_as_there_is_room(&inside, File::from(screen));
}

#[isolated_test]
fn a_task_writes_to_a_file_and_to_null() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"before ").unwrap();
    let write = |stdout: &OwnedFd| {
        with_stdout(stdout, || {
            one_thread().block_on(async {
                stdout_async().unwrap().write_all(&flood(300_000)).await.unwrap();
            });
        });
    };
    write(&file.try_clone().unwrap().into());
    file.write_all(b" after").unwrap();
    let mut all = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut all).unwrap();
    assert!(all == [b"before ".as_slice(), &flood(300_000), b" after"].concat());
    write(&File::options().write(true).open("/dev/null").unwrap().into());
    one_thread().block_on(async {
        let mut stderr = stderr_async().unwrap();
        stderr.write_all(b"").await.unwrap();
        stderr.flush().await.unwrap();
    });
}

#[watched_test]
fn without_a_runtime_a_task_has_no_stdio() {
    let unsupported = io::ErrorKind::Unsupported;
    assert_eq!(stdin_async().unwrap_err().kind(), unsupported);
    assert_eq!(stdout_async().unwrap_err().kind(), unsupported);
    assert_eq!(stderr_async().unwrap_err().kind(), unsupported);
}

#[watched_test]
fn an_end_is_made_from_a_handle() {
    let (reader, writer) = pipewright::pipe(Default::default()).unwrap();
    let [reader, writer] = [Handle::from(reader), Handle::from(writer)];
    let (mut reader, mut writer) = (PipeReader::from(reader), PipeWriter::from(writer));
    writer.write_all(b"hello").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}
