//! The ends of a child's pipes in a task.

use std::future::Future;
use std::io::{self, Read as _};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pipewright::{AsyncPipeReader, AsyncPipeWriter, Child, Mode, PipeOptions, Stdio, pipe};
use pipewright_test_macros::{isolated_test, watched_test};
#[cfg(unix)]
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{count, pace, watchdog};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::async_verbs::one_thread;
use super::{flood, puppet};

/// Returns a time in which a write that has room completes.
fn a_while() -> Duration {
    pace::millis(100)
}

/// A puppet with pipes, whose stdin a task can write to.
fn piped(acts: &[&str], stdin: Stdio) -> (Child, AsyncPipeWriter) {
    let mut child = puppet(acts).stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap().into_async().unwrap();
    (child, stdin)
}

fn both_stdins() -> [Stdio; 2] {
    [Stdio::piped(), Stdio::piped_async()]
}

/// Writes the bytes, and checks that all of them come back.
async fn echoes(stdin: &mut AsyncPipeWriter, stdout: &mut AsyncPipeReader, bytes: &[u8]) {
    let mut echo = Vec::new();
    let (written, read) = tokio::join!(
        async {
            stdin.write_all(bytes).await?;
            stdin.shutdown().await
        },
        stdout.read_to_end(&mut echo)
    );
    written.unwrap();
    assert!(read.unwrap() == bytes.len() && echo == bytes);
}

pub(super) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[watched_test]
fn bytes_arrive_whole_both_ways_at_once() {
    for stdin in both_stdins() {
        one_thread().block_on(async {
            let bytes = flood(5_000_000);
            let (mut child, mut stdin) = piped(&["cat"], stdin);
            let mut stdout = child.stdout.take().unwrap().into_async().unwrap();
            echoes(&mut stdin, &mut stdout, &bytes).await;
            // Every later read returns the end again.
            assert_eq!(stdout.read(&mut [0; 8]).await.unwrap(), 0);
            assert!(child.wait_async().await.unwrap().success());
        });
    }
}

#[watched_test]
fn both_outputs_are_read_at_once_and_in_small_pieces() {
    one_thread().block_on(async {
        let mut child = puppet(["alternate=300000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ends = [child.stdout.take().unwrap(), child.stderr.take().unwrap()];
        let [mut out, mut err] = ends.map(|end| end.into_async().unwrap());
        let (mut all, mut small, mut piece) = (Vec::new(), Vec::new(), [0; 97]);
        let (from_out, ()) = tokio::join!(out.read_to_end(&mut all), async {
            loop {
                match err.read(&mut piece).await.unwrap() {
                    0 => break,
                    count => small.extend_from_slice(&piece[..count]),
                }
            }
        });
        assert_eq!(from_out.unwrap(), 300_000);
        assert!(all == super::alternating(300_000) && small == all);
        assert!(child.wait_async().await.unwrap().success());
    });
}

#[watched_test]
fn a_shutdown_closes_stdin() {
    for stdin in both_stdins() {
        one_thread().block_on(async {
            let (child, mut stdin) = piped(&["count"], stdin);
            stdin.write_all(&flood(300_000)).await.unwrap();
            stdin.shutdown().await.unwrap();
            stdin.shutdown().await.unwrap();
            let refused = stdin.write(b"more").await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(child.read_all_text_async().await.unwrap().stdout, "300000\n");
        });
    }
}

/// Checks also the bytes for which the pipe has no room yet.
#[watched_test]
fn a_drop_closes_stdin_after_all_accepted_bytes() {
    for stdin in both_stdins() {
        one_thread().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let go = dir.path().join("go");
            let wait = format!("wait-for-file={}", go.display());
            let (child, mut stdin) = piped(&[&wait, "count"], stdin);
            let mut taken = 0;
            while let Ok(count) = timeout(a_while(), stdin.write(&[7; 50_000])).await {
                taken += count.unwrap();
            }
            // Windows: more than the pipe holds.
            assert!(taken > if cfg!(windows) { 64 << 10 } else { 60_000 });
            drop(stdin);
            std::fs::write(&go, "").unwrap();
            let text = child.read_all_text_async().await.unwrap().stdout;
            assert_eq!(text, format!("{taken}\n"));
        });
    }
}

#[watched_test]
fn a_child_that_stops_reading_is_a_broken_pipe() {
    for stdin in both_stdins() {
        one_thread().block_on(async {
            let (child, mut stdin) = piped(&["exit=3"], stdin);
            assert_eq!(child.wait_async().await.unwrap().code(), Some(3));
            let broken = async {
                stdin.write_all(&flood(300_000)).await?;
                stdin.flush().await
            };
            assert_eq!(broken.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            let (child, mut stdin) = piped(&["wait=0.1", "exit=4"], Stdio::piped_async());
            // It ends while a write waits.
            let written = stdin.write_all(&flood(3_000_000)).await;
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(child.wait_async().await.unwrap().code(), Some(4));
        });
    }
}

#[watched_test]
fn a_future_that_is_dropped_loses_no_byte_and_writes_none_twice() {
    const BYTES: usize = 400_000;
    let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: Some(16 << 10) };
    one_thread().block_on(async {
        let (reader, writer) = pipe(options).unwrap();
        let (mut reader, mut writer) = (reader.into_async().unwrap(), writer.into_async().unwrap());
        let (expected, mut read, mut written) = (flood(BYTES), Vec::new(), 0);
        while read.len() < BYTES {
            let mut piece = [0; 3000];
            // Each is polled once and dropped; only ready operations have taken effect.
            if let Poll::Ready(count) = poll_once(writer.write(&expected[written..])) {
                written += count.unwrap();
            }
            if let Poll::Ready(count) = poll_once(reader.read(&mut piece)) {
                read.extend_from_slice(&piece[..count.unwrap()]);
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(written, BYTES);
        assert!(read == expected);
        // A waiting read is dropped, and the next one returns the bytes that arrived meanwhile.
        assert!(poll_once(reader.read(&mut [0; 8])).is_pending());
        writer.write_all(b"late").await.unwrap();
        let mut late = [0; 8];
        assert_eq!(reader.read(&mut late).await.unwrap(), 4);
        drop(writer);
        assert_eq!(reader.read(&mut late).await.unwrap(), 0);
    });
}

#[watched_test]
fn pipeline_ends_can_be_async() {
    one_thread().block_on(async {
        let mut first = puppet(["cat"]);
        first.stdin(Stdio::piped_async());
        let mut last = puppet(["cat"]);
        last.stdout(Stdio::piped());
        let mut child = (first | last).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap().into_async().unwrap();
        let mut stdout = child.stdout.take().unwrap().into_async().unwrap();
        let bytes = flood(1_000_000);
        echoes(&mut stdin, &mut stdout, &bytes).await;
        assert!(child.wait_async().await.unwrap().success());

        let mut last = puppet(["cat", "exit=5"]);
        last.stdout(Stdio::piped());
        let child = (puppet(["out-bytes=300000"]) | last).spawn().unwrap();
        let output = child.wait_with_output_async().await.unwrap();
        assert!(output.stdout == flood(300_000) && output.status.code() == Some(5));
    });
}

/// Other holders of a pipe see no change: a blocking end stays blocking.
#[watched_test]
fn other_handles_of_a_pipe_keep_their_mode() {
    one_thread().block_on(async {
        let (reader, writer) = pipe(PipeOptions::default()).unwrap();
        let mut copy = writer.try_clone().unwrap();
        let mut writer = writer.into_async().unwrap();
        writer.write_all(b"one").await.unwrap();
        writer.shutdown().await.unwrap();
        io::Write::write_all(&mut copy, b"two").unwrap();
        drop(copy);
        let mut text = String::new();
        { reader }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
    });
}

#[watched_test]
fn outside_of_a_runtime_there_is_an_error() {
    let (reader, writer) = pipe(PipeOptions::default()).unwrap();
    let (reader, writer) = (reader.into_async(), writer.into_async());
    for error in [reader.unwrap_err(), writer.unwrap_err()] {
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}

#[isolated_test]
fn async_pipes_leave_nothing_and_take_no_thread() {
    let round = || {
        one_thread().block_on(async {
            let options = PipeOptions { read: Mode::Async, write: Mode::Async, capacity: None };
            let ends: Vec<_> = (0..20).map(|_| pipe(options).unwrap()).collect();
            let mut ends: Vec<_> = ends
                .into_iter()
                .map(|(read, write)| (read.into_async().unwrap(), write.into_async().unwrap()))
                .collect();
            // Each reads, and none has any bytes.
            for (reader, _) in &mut ends {
                assert!(poll_once(reader.read(&mut [0; 8])).is_pending());
            }
            let threads = count::threads();
            for (_, writer) in &mut ends {
                while poll_once(writer.write(&[7; 50_000])).is_ready() {}
            }
            threads
        })
    };
    // Creates resources that stay: on Windows, the thread that starts writes.
    round();
    let first = round();
    let before = count::handles();
    for _ in 0..5 {
        // Accepted bytes that are never read are discarded too.
        assert!(round() <= first);
    }
    watchdog::until("every handle is closed", || count::handles() <= before);
}

/// Other holders of a task's end find it as they would find std's.
#[cfg(unix)]
#[watched_test]
fn a_clone_of_an_async_end_blocks_without_blocking_the_task() {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    let blocks = |fd: &std::fs::File| {
        !rustix::fs::fcntl_getfl(fd).unwrap().contains(rustix::fs::OFlags::NONBLOCK)
    };
    one_thread().block_on(async {
        for stdin in both_stdins() {
            let mut child = puppet(["cat"]).stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let [mut into, mut from] = [stdin.as_fd(), stdout.as_fd()]
                .map(|fd| std::fs::File::from(fd.try_clone_to_owned().unwrap()));
            let (mut stdin, mut stdout) =
                (stdin.into_async().unwrap(), stdout.into_async().unwrap());
            assert!(timeout(a_while(), stdout.read(&mut [0; 8])).await.is_err());
            stdin.write_all(b"one").await.unwrap();
            let mut echo = [0; 3];
            stdout.read_exact(&mut echo).await.unwrap();
            assert_eq!(&echo, b"one");
            assert!(blocks(&into) && blocks(&from));

            if !cfg!(target_os = "linux") || is_forced_off("vmsplice") {
                skipped(Need::TryRead, "a read follows a poll here, and can block");
                continue;
            }
            // A thread blocks in a read of the same pipe: bytes that it takes must not block the task.
            let taking = std::thread::spawn(move || {
                let mut taken = [0; 3];
                from.read_exact(&mut taken).map(|()| (taken, from))
            });
            into.write_all(b"two").unwrap();
            let mut rest = [0; 3];
            let task_has_it = timeout(a_while(), stdout.read_exact(&mut rest)).await.is_ok();
            if task_has_it {
                // Then the thread gets the next bytes.
                into.write_all(b"two").unwrap();
            }
            let (taken, from) = taking.join().unwrap().unwrap();
            assert_eq!(&taken, b"two");
            drop((into, stdin));
            assert_eq!(stdout.read(&mut rest).await.unwrap(), 0);
            drop(from);
            assert!(child.wait_async().await.unwrap().success());
        }
    });
}
