//! Input of a spawned child: it arrives with and without a call that waits.

use std::io::{self, Read};
use std::sync::mpsc::channel;

use pipewright::{Child, Command, ErrorKind, Outcome, ProcessHandle, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, watchdog};

use super::async_pipes::poll_once;
use super::async_verbs::one_thread;
use super::{flood, puppet, short};

/// A size beyond the capacity of a pipe.
const MUCH: usize = 500_000;

/// Returns each kind of input with these bytes.
fn inputs(bytes: &[u8]) -> [Stdio; 3] {
    let owned = bytes.to_vec();
    [Stdio::bytes(bytes), Stdio::bytes_of(owned), Stdio::reader(io::Cursor::new(bytes.to_vec()))]
}

fn spawn(acts: &[&str], stdin: Stdio) -> Child {
    puppet(acts).stdin(stdin).stdout(Stdio::piped()).spawn().unwrap()
}

fn all_of(mut stdout: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stdout.read_to_end(&mut bytes).unwrap();
    bytes
}

#[watched_test]
fn a_caller_that_reads_the_streams_gets_everything() {
    for count in [0, 1, MUCH] {
        for stdin in inputs(&flood(count)) {
            let mut child = spawn(&["cat", "exit=3"], stdin);
            assert!(all_of(child.stdout.take().unwrap()) == flood(count), "{count} bytes");
            assert_eq!(child.wait().unwrap().code(), Some(3));
        }
    }
}

#[watched_test]
fn a_pipeline_is_fed_too() {
    for stdin in inputs(&flood(MUCH)) {
        let mut first = puppet(["cat"]);
        first.stdin(stdin);
        let mut last = puppet(["cat", "exit=4"]);
        last.stdout(Stdio::piped());
        let mut child = (first | last).spawn().unwrap();
        assert!(all_of(child.stdout.take().unwrap()) == flood(MUCH));
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

#[watched_test]
fn unread_input_is_counted_by_waits() {
    // Once all of it fits into the pipe, and once not.
    for (taken_bytes, count) in [(1000, 5000), (1_000_000, 3_000_000)] {
        if is_forced_off("pidfd") && count > MUCH {
            // Only a call that waits can see the child's exit then.
            continue;
        }
        let eat = format!("eat={taken_bytes}");
        for stdin in [|it: Vec<u8>| Stdio::bytes(it), |it| Stdio::bytes_of(it)] {
            let spawn = || spawn(&[&eat], stdin(flood(count)));
            let left = (count - taken_bytes) as u64;
            assert_eq!(spawn().wait_with_output().unwrap().stdin_unread, left);
            assert_eq!(spawn().read_all_text().unwrap().stdin_unread, left);
            assert_eq!(spawn().read_all_lines().unwrap().finish().unwrap().stdin_unread, left);
            let runtime = one_thread();
            let output = runtime.block_on(spawn().wait_with_output_async()).unwrap();
            assert_eq!(output.stdin_unread, left);
            // Also long after the child has ended.
            let mut child = spawn();
            all_of(child.stdout.take().unwrap());
            watchdog::until("it has ended", || child.try_wait().unwrap().is_some());
            assert_eq!(child.wait_with_output().unwrap().stdin_unread, left);
        }
    }
}

#[watched_test]
fn a_child_that_is_dropped_is_fed_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    // Each child writes its own file: a file that is removed while a process
    // still has it open disappears late under Wine, with its successor.
    let mut files = (0..).map(|number: u32| dir.path().join(number.to_string()));
    for ends in [|child| drop::<Child>(child), |child| drop(ProcessHandle::from(child))] {
        for stdin in inputs(&flood(MUCH)) {
            let file = files.next().unwrap();
            ends(puppet(["count"]).stdin(stdin).stdout(Stdio::create(&file)).spawn().unwrap());
            watchdog::until("it has counted all of it", || {
                std::fs::read_to_string(&file).is_ok_and(|text| text == format!("{MUCH}\n"))
            });
        }
    }
}

#[watched_test]
fn a_wait_that_is_dropped_loses_no_input() {
    one_thread().block_on(async {
        for stdin in inputs(&flood(MUCH)) {
            let mut child = spawn(&["count"], stdin);
            assert!(poll_once(child.wait_async()).is_pending());
            assert_eq!(all_of(child.stdout.take().unwrap()), format!("{MUCH}\n").as_bytes());
            assert!(child.wait_async().await.unwrap().success());
        }
    });
}

#[isolated_test]
fn input_that_is_never_read_leaves_nothing() {
    // The thread that feeds has a handle, which stays for a while.
    spawn(&["wait=0.01"], Stdio::bytes(flood(MUCH))).wait().unwrap();
    let threads = count::threads();
    let nothing = |before: usize| {
        watchdog::until("every handle is closed", || count::handles() <= before);
        watchdog::until("no thread is left", || count::threads() <= threads);
        watchdog::until("every child is reaped", || count::children().is_empty());
    };
    let before = count::handles();
    for stdin in inputs(&flood(MUCH)) {
        let child = spawn(&["wait=600"], stdin);
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        drop(child);
        nothing(before);
    }
    for stdin in inputs(&flood(MUCH)) {
        // No call waits for it.
        let child = spawn(&["wait=600"], stdin);
        let pid = child.id();
        drop(child);
        alive::kill(pid);
        nothing(before);
    }
    for (index, stdin) in inputs(&flood(MUCH)).into_iter().enumerate() {
        // A grandchild holds the pipe, and reads nothing.
        let mut command = puppet(["leave=wait=600", "exit=0"]);
        command.stdin(stdin).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let grandchild = String::from_utf8(output.stderr).unwrap();
        // With a reader the child may exit before anything was read.
        assert!(output.stdin_unread > 0 || index == 1);
        alive::kill(grandchild.trim().parse().unwrap());
        nothing(before);
    }
}

#[watched_test]
fn a_failing_input_reader_kills_the_child_and_the_wait_returns_its_error() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "without pidfds nobody but its owner can kill a child");
    }
    struct FailingReader(bool);
    impl Read for FailingReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("no tape"));
            }
            buffer[..4].copy_from_slice(b"half");
            Ok(4)
        }
    }
    let check = |error: pipewright::Error| {
        assert_eq!(error.kind(), &ErrorKind::Io);
        assert!(error.to_string().contains("cannot read the input for "), "{error}");
        assert!(error.to_string().ends_with("no tape"), "{error}");
    };
    let failing = || spawn(&["cat", "wait=600"], Stdio::reader(FailingReader(false)));
    let mut child = failing();
    // A caller that reads the streams itself is not left waiting.
    all_of(child.stdout.take().unwrap());
    check(child.wait().unwrap_err());
    assert!(!child.wait().unwrap().success(), "it is reported once");
    // The same if more than its exit is waited for.
    let mut command = puppet(["cat", "wait=600"]);
    command.stdin(Stdio::reader(FailingReader(false))).timeout(std::time::Duration::from_secs(600));
    let child = command.spawn().unwrap();
    check(child.wait().unwrap_err());
    assert!(!child.wait().unwrap().success(), "it is reported once");
    check(failing().wait_with_output().unwrap_err());
    check(failing().read_all_lines().unwrap().finish().unwrap_err());
    one_thread().block_on(async {
        check(failing().wait_async().await.unwrap_err());
        check(failing().wait_with_output_async().await.unwrap_err());
    });
    let mut first = puppet(["cat", "wait=600"]);
    first.stdin(Stdio::reader(FailingReader(false)));
    let child = (first | puppet(["wait=600"])).spawn().unwrap();
    check(child.wait().unwrap_err());
}

#[watched_test]
fn a_reader_that_panics_is_an_error() {
    struct Panics;
    impl Read for Panics {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("on purpose")
        }
    }
    let error = spawn(&["cat"], Stdio::reader(Panics)).wait().unwrap_err();
    assert!(error.to_string().ends_with("the reader panicked"), "{error}");
}

#[watched_test]
fn a_blocking_input_reader_delays_no_other_child() {
    struct BlockingReader(std::sync::mpsc::Receiver<()>);
    impl Read for BlockingReader {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            // Ignored: it is over.
            let _ = self.0.recv();
            Ok(0)
        }
    }
    let (_still_there, blocks) = channel();
    let mut command = puppet(["out=said", "wait=600"]);
    command.stdin(Stdio::reader(BlockingReader(blocks))).stdout(Stdio::piped()).timeout(short());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.outcome), (&b"said"[..], Outcome::TimedOut));
    let (still_there, blocks) = channel();
    let child = spawn(&["wait=0.01", "exit=5"], Stdio::reader(BlockingReader(blocks)));
    assert_eq!(child.wait().unwrap().code(), Some(5));
    drop(still_there);
}

#[cfg(unix)]
#[isolated_test]
fn the_default_sigpipe_action_does_not_kill_us() {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    for stdin in inputs(&flood(MUCH)) {
        let mut command = Command::new("sh");
        command.args(["-c", "exec < /dev/null; echo closed; exec sleep 600"]).kill_on_drop();
        let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = [0; 7];
        child.stdout.take().unwrap().read_exact(&mut text).unwrap();
        assert_eq!(&text, b"closed\n");
        drop(child);
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
}

/// The thread that feeds does not exist in a forked process, and its children belong to the other process.
#[cfg(unix)]
#[isolated_test]
fn a_forked_process_feeds_only_its_own_children() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "the fork is waited for by a pidfd");
    }
    let mut ours = spawn(&["cat"], Stdio::bytes(flood(MUCH)));
    // SAFETY: the child only uses data of this thread, and ends by `_exit`.
    #[expect(clippy::disallowed_methods, reason = "tests a fork, as a daemon makes it")]
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let mut theirs = spawn(&["cat"], Stdio::bytes(flood(MUCH)));
        let is_whole = all_of(theirs.stdout.take().unwrap()) == flood(MUCH);
        let is_over = theirs.wait().is_ok_and(|status| status.success());
        // SAFETY: it ends here.
        unsafe { libc::_exit(if is_whole && is_over { 0 } else { 1 }) };
    }
    let other = ProcessHandle::open(forked as u32).unwrap();
    assert!(other.wait().unwrap().status.unwrap().success());
    assert!(all_of(ours.stdout.take().unwrap()) == flood(MUCH));
    assert!(ours.wait().unwrap().success());
}
