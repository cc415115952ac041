//! A tee passes on the captured output, and a slow reader of our stream delays only the child.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Limit, Linger, Outcome, PipeOptions, PipeReader, Source, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_async, skipped};
use pipewright_tests::{count, pace, watchdog};
use rustix::fs::OFlags;

use super::{flood, puppet, short, with_time};

/// Runs `body` with that as stdout. Only in a process of its own.
pub(crate) fn with_stdout<T>(stdout: impl AsFd, work: impl FnOnce() -> T) -> T {
    let saved = io::stdout().as_fd().try_clone_to_owned().unwrap();
    rustix::stdio::dup2_stdout(stdout).unwrap();
    let result = work();
    rustix::stdio::dup2_stdout(&saved).unwrap();
    result
}

/// Returns a pipe for our stdout, and its reader.
fn pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    (reader, writer.into())
}

fn blocks(fd: impl AsFd) -> bool {
    !rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
}

/// Checks that a run with unread output ends in time, by every kind of stop.
fn is_stopped_in_time(stdout: &OwnedFd) {
    // Returns nothing if the child was stopped before it had written more than our stdout takes.
    let run = |change: &dyn Fn(&mut pipewright::Command)| {
        let mut command = puppet(["out-bytes=3000000", "wait=600"]);
        command.stdout(Stdio::tee()).kill_grace(Duration::ZERO);
        let before = count::handles_at_rest();
        change(&mut command);
        let done = with_stdout(stdout, || command.output()).unwrap();
        // A cancel token has a handle too, and the thread that cancels may be the last to hold it.
        drop(command);
        watchdog::until("no handle is left", || count::handles() == before);
        assert!(blocks(stdout), "others share our stdout");
        // The part that was read is kept, and is not everything: the child had to wait.
        assert!(done.stdout == flood(done.stdout.len()));
        assert!(done.stdout.len() < 3_000_000, "{} bytes were read", done.stdout.len());
        let failed = done.tee_failed?;
        assert_eq!((failed.source, failed.kind), (Source::Stdout, io::ErrorKind::TimedOut));
        Some(done.outcome)
    };
    let timed_out = with_time(short(), |time| {
        run(&|command| {
            command.timeout(time);
        })
    });
    assert_eq!(timed_out, Outcome::TimedOut);
    let asked = with_time(short(), |time| {
        run(&|command| {
            command.timeout(time).kill_grace(Duration::from_secs(100));
        })
    });
    assert_eq!(asked, Outcome::TimedOut);
    let cancelled = with_time(short(), |time| {
        run(&|command| {
            let token = CancelToken::new();
            command.cancel(&token);
            thread::spawn(move || {
                thread::park_timeout(time);
                token.cancel();
            });
        })
    });
    assert_eq!(cancelled, Outcome::Cancelled);
}

#[isolated_test]
fn a_stuck_pipe_delays_no_timeout_or_cancel() {
    let (_reader, stdout) = pipe();
    // So that no chunk ends at the pipe's capacity: a blocking write would show.
    rustix::io::write(&stdout, &[0; 10]).unwrap();
    is_stopped_in_time(&stdout);
}

#[isolated_test]
fn a_stuck_socket_delays_no_timeout_or_cancel() {
    // Cannot be reopened, so the fallback is used.
    let (_reader, stdout) = UnixStream::pair().unwrap();
    is_stopped_in_time(&stdout.into());
}

#[isolated_test]
fn a_stuck_terminal_delays_no_timeout_or_cancel() {
    let (_screen, stdout) = terminal();
    is_stopped_in_time(&stdout);
}

/// Returns both sides of a new terminal.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    use std::os::fd::FromRawFd;
    let (mut screen, mut inside) = (-1, -1);
    use std::ptr::null_mut;
    let (name, settings, size) = (null_mut(), null_mut(), null_mut());
    // SAFETY: two places for numbers, and nothing else.
    let made = unsafe { libc::openpty(&mut screen, &mut inside, name, settings, size) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    // SAFETY: the call above made it, and nothing else owns it.
    let screen = unsafe { OwnedFd::from_raw_fd(screen) };
    // SAFETY: as above.
    (screen, unsafe { OwnedFd::from_raw_fd(inside) })
}

#[isolated_test]
fn a_slow_tee_reader_gets_everything() {
    for linger in [
        Linger::StopAtExit,
        Linger::UntilEof,
        Linger::Settle { quiet: Duration::from_millis(1), cap: Duration::from_millis(2) },
    ] {
        // A child that has not even begun within the time is idle.
        with_time(pace::seconds(2), |idle| {
            let (mut reader, stdout) = pipe();
            let passed = thread::spawn(move || {
                // Longer than the child runs, than the linger and than its cap.
                thread::park_timeout(idle * 3 / 2);
                let mut passed = Vec::new();
                reader.read_to_end(&mut passed).map(|_| passed)
            });
            let mut command = puppet(["out-bytes=400000"]);
            command.stdout(Stdio::tee()).linger(linger).idle_timeout(idle);
            let done = with_stdout(&stdout, || command.output()).unwrap();
            drop(stdout);
            let passed = passed.join().unwrap().unwrap();
            if done.stdout.is_empty() {
                return None;
            }
            assert_eq!((done.outcome, done.tee_failed), (Outcome::Exited, None), "{linger:?}");
            assert!(done.stdout == flood(400_000) && !done.held_open, "{linger:?}");
            assert!(passed == flood(400_000), "{linger:?}");
            Some(())
        });
    }
}

#[watched_test]
fn a_limit_that_is_found_after_the_end_leaves_a_tee_its_time() {
    const LIMIT_BYTES: usize = 100_000;
    let run = || {
        let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
        let passed = thread::spawn(move || {
            let mut passed = Vec::new();
            let mut some = [0; 512];
            let (begun, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            // Slower than the run notices the end, and never idle for long.
            loop {
                thread::park_timeout(Duration::from_millis(1));
                match reader.read(&mut some).unwrap() {
                    0 => return (passed, begun.elapsed(), longest),
                    count => passed.extend_from_slice(&some[..count]),
                }
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
        });
        let mut command = puppet(["out-bytes=101000"]);
        command.stdout(Stdio::tee_to(writer)).limit(Limit::fail(LIMIT_BYTES));
        let done = command.output().unwrap();
        drop(command);
        assert_eq!(done.outcome, Outcome::LimitExceeded);
        (done.tee_failed, passed.join().unwrap())
    };
    // A reader that got no processor was idle for long, or took longer than a tee waits in all.
    for attempt in 1.. {
        let (failed, (passed, all, longest)) = run();
        if failed.is_none() {
            assert!(passed == flood(LIMIT_BYTES));
            return;
        }
        let is_slow = all > Duration::from_secs(4) || longest > Duration::from_millis(50);
        assert!(is_slow && attempt < 20, "{failed:?} after {all:?}, idle for {longest:?} at most");
    }
}

#[isolated_test]
fn both_streams_and_lines_are_teed() {
    let (mut reader, stdout) = pipe();
    let passed = thread::spawn(move || {
        let mut passed = Vec::new();
        reader.read_to_end(&mut passed).map(|_| passed)
    });
    let lines = with_stdout(&stdout, || {
        // Our own output, without a line end, comes first.
        print!("ours ");
        let mut command = puppet(["lines=30000"]);
        let mut lines = command.stdout(Stdio::tee()).lines().unwrap();
        let count = lines.by_ref().count();
        assert_eq!(lines.finish().unwrap().tee_failed, None);
        let mut command = puppet(["out=spawned"]);
        let child = command.stdout(Stdio::tee()).spawn().unwrap();
        assert_eq!(child.read_all_text().unwrap().stdout, "spawned");
        count
    });
    drop(stdout);
    assert_eq!(lines, 30_000);
    let mut expected = String::new();
    for n in 0..30_000 {
        expected += &format!("line {n}\n");
    }
    let passed = String::from_utf8(passed.join().unwrap().unwrap()).unwrap();
    assert_eq!(passed, format!("ours {expected}spawned"));
}

#[isolated_test]
fn a_spawned_pipeline_tees_its_output() {
    let (mut reader, stdout) = pipe();
    let done = with_stdout(&stdout, || {
        let last = puppet(["cat"]).stdout(Stdio::tee()).owned();
        (puppet(["out=both ways"]) | last).spawn().unwrap().wait_with_output()
    });
    drop(stdout);
    assert_eq!(done.unwrap().stdout, b"both ways");
    let mut passed = String::new();
    reader.read_to_string(&mut passed).unwrap();
    assert_eq!(passed, "both ways");
}

#[isolated_test]
fn a_tee_to_a_full_disk_is_reported_and_the_capture_is_whole() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = puppet(["out-bytes=300000", "exit=3"]);
    command.stdout(Stdio::tee());
    let done = with_stdout(&full, || command.output()).unwrap();
    assert!(done.stdout == flood(300_000));
    assert_eq!((done.outcome, done.status.code()), (Outcome::Exited, Some(3)));
    let failed = done.tee_failed.expect("the disk is full");
    assert_eq!((failed.kind, failed.os_error), (io::ErrorKind::StorageFull, Some(28)));
    let words = "cannot write to stdout: No space left on device (os error 28)";
    assert_eq!(failed.to_string(), words);
    // Verbs without a field for it return the error.
    let error = with_stdout(&full, || command.status()).unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::StorageFull);
    let mut command = puppet(["out=x"]);
    command.stdout(Stdio::tee());
    let error = with_stdout(&full, || command.run()).unwrap_err();
    let words = "cannot forward the output of";
    assert!(error.to_string().starts_with(words), "{error}");
    assert!(with_stdout(&full, || command.read()).is_err());
}

#[isolated_test]
fn a_tee_to_a_gone_reader_stops() {
    let (reader, stdout) = pipe();
    drop(reader);
    let mut command = puppet(["out-bytes=300000"]);
    command.stdout(Stdio::tee());
    let done = with_stdout(&stdout, || command.output()).unwrap();
    assert!(done.stdout == flood(300_000));
    assert!(done.tee_failed.is_some_and(|failed| failed.is_reader_gone()));
    assert!(with_stdout(&stdout, || command.status()).unwrap().success());
    // Also if the reader goes away in the middle.
    let (mut reader, stdout) = pipe();
    let goes = thread::spawn(move || reader.read_exact(&mut [0; 100_000]));
    let done = with_stdout(&stdout, || command.output()).unwrap();
    goes.join().unwrap().unwrap();
    assert!(done.stdout == flood(300_000));
    assert!(done.tee_failed.is_some_and(|failed| failed.is_reader_gone()));
}

#[isolated_test]
fn a_tee_to_a_closed_stdout_is_no_failure() {
    if is_forced_async() {
        return skipped(
            Need::BlockingVerbs,
            "a runtime takes the number that is free, which would be that",
        );
    }
    let saved = io::stdout().as_fd().try_clone_to_owned().unwrap();
    let before = count::handles();
    // SAFETY: this process runs nothing but this test, and it is put back below.
    unsafe { libc::close(1) };
    let done = puppet(["out=x"]).stdout(Stdio::tee()).output();
    // One of our threads may have a handle of that number for a moment longer.
    watchdog::until("every handle is closed", || count::handles() < before);
    rustix::stdio::dup2_stdout(&saved).unwrap();
    let done = done.unwrap();
    assert_eq!((done.stdout.as_slice(), done.tee_failed), (&b"x"[..], None));
}

#[watched_test]
fn a_tee_to_a_file_is_captured_and_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let to = |target| {
        let mut command = puppet(["out-bytes=300000"]);
        command.stdout(Stdio::tee_to(target));
        command
    };
    let done = to(Stdio::create(&path)).output().unwrap();
    assert!(done.stdout == flood(300_000) && done.tee_failed.is_none());
    to(Stdio::append(&path)).run().unwrap();
    let child = to(Stdio::append(&path)).spawn().unwrap();
    assert!(child.wait_with_output().unwrap().stdout == flood(300_000));
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    let mut command = to(file.into());
    // A copy of the handle for each.
    command.status().unwrap();
    command.status().unwrap();
    assert!(std::fs::read(&path).unwrap() == flood(300_000).repeat(5));
    let mut through = puppet(["out=x"]) | to(Stdio::create(&path));
    assert!(through.output().unwrap().stdout == std::fs::read(&path).unwrap());
}

#[watched_test]
fn a_tee_that_cannot_be_written_is_reported() {
    let full = || Stdio::tee_to(Stdio::append("/dev/full"));
    let done = puppet(["out=x"]).stdout(full()).output().unwrap();
    assert_eq!(done.stdout, b"x");
    if cfg!(target_os = "linux") {
        let failed = done.tee_failed.unwrap();
        assert_eq!(failed.kind, io::ErrorKind::StorageFull);
        // Not "cannot write to stdout": this process's stdout is not involved.
        let words =
            "cannot write stdout to its file or handle: No space left on device (os error 28)";
        assert_eq!(failed.to_string(), words);
        assert!(puppet(["out=x"]).stdout(full()).status().is_err());
    }
    let refused = |stdio| puppet(["out=x"]).stdout(stdio).output().unwrap_err().to_string();
    let words = refused(Stdio::tee_to(Stdio::piped()));
    assert!(words.ends_with("a tee target must be a file, a handle, null or inherit"), "{words}");
    assert!(refused(Stdio::tee_to(Stdio::open("/dev/null"))).contains("read from"));
    let nobody = refused(Stdio::tee_to(Stdio::create("/no/such/file")));
    assert!(nobody.contains("/no/such/file"), "{nobody}");
    let stage = puppet(["out=x"]).stderr(Stdio::tee_to(Stdio::null())).owned();
    let words = (stage | puppet(["cat"])).output().unwrap_err().to_string();
    assert!(words.contains("all stages share one stderr pipe"), "{words}");
}
