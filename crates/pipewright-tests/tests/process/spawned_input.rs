//! Input of a child: fed, written while its output is read, and with and without a call that waits.

use std::io::{self, Read, Write as _};
use std::sync::mpsc::channel;

use pipewright::{Child, Command, ErrorKind, Event, Outcome, ProcessHandle, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, watchdog};
use tokio::io::AsyncWriteExt as _;

use crate::async_pipes::poll_once;
use crate::async_verbs::one_thread;
use crate::{flood, puppet, short, with_time};

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
        // With the reader, the last one, the child may exit before anything was read.
        assert!(output.stdin_unread > 0 || index == 2);
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
    with_time(short(), |time| {
        let (_still_there, blocks) = channel();
        let mut command = puppet(["out=said", "wait=600"]);
        command.stdin(Stdio::reader(BlockingReader(blocks))).stdout(Stdio::piped()).timeout(time);
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.outcome, Outcome::TimedOut);
        (output.stdout == b"said").then_some(())
    });
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

fn cat() -> Command {
    puppet(["cat", "exit=3"]).stdin(Stdio::piped()).owned()
}

#[watched_test]
fn a_dialogue_works_while_stdin_is_open() {
    let mut lines = cat().lines().unwrap();
    let mut stdin = lines.take_stdin().unwrap();
    assert!(lines.take_stdin().is_none());
    for text in ["one", "two"] {
        writeln!(stdin, "{text}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap().text, text);
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert_eq!(lines.finish().unwrap().status.code(), Some(3));

    let mut events = cat().events().unwrap();
    let Event::Started(_) = events.next().unwrap().unwrap() else { panic!("the start") };
    let mut stdin = events.take_stdin().unwrap();
    for text in ["one", "two"] {
        stdin.write_all(text.as_bytes()).unwrap();
        assert_eq!(events.next().unwrap().unwrap(), Event::Stdout(text.into()));
    }
    drop(stdin);
    let Some(Ok(Event::Exited(ending))) = events.next() else { panic!("the end") };
    assert_eq!(ending.status.code(), Some(3));
}

#[watched_test]
fn a_task_writes_and_reads_at_once() {
    one_thread().block_on(async {
        let mut command = puppet(["cat"]);
        let mut events = command.stdin(Stdio::piped_async()).events_async().unwrap();
        let mut stdin = events.take_stdin().unwrap().into_async().unwrap();
        let bytes = flood(1_000_000);
        let (_, read) = tokio::join!(
            async {
                stdin.write_all(&bytes).await.unwrap();
                stdin.shutdown().await.unwrap();
            },
            async {
                let mut read = Vec::new();
                while let Some(event) = events.next().await {
                    if let Event::Stdout(bytes) = event.unwrap() {
                        read.extend(bytes);
                    }
                }
                read
            }
        );
        assert!(read == bytes);
        let mut lines = cat().lines_async().unwrap();
        lines.take_stdin().unwrap().write_all(b"said\n").unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap().text, "said");
        assert!(lines.next().await.is_none());
    });
}

#[watched_test]
fn an_untaken_stdin_is_closed_by_the_first_wait() {
    assert!(cat().lines().unwrap().next().is_none());
    assert_eq!(cat().lines().unwrap().finish().unwrap().status.code(), Some(3));
    let mut events = cat().events().unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Started(_)))));
    assert!(matches!(events.next(), Some(Ok(Event::Exited(_)))));
    assert!(events.take_stdin().is_none(), "it is too late");
    one_thread().block_on(async {
        assert!(cat().lines_async().unwrap().next().await.is_none());
        assert_eq!(cat().events_async().unwrap().finish().await.unwrap().status.code(), Some(3));
    });
    assert!(puppet(["cat"]).lines().unwrap().take_stdin().is_none(), "it is not piped");
}

#[watched_test]
fn stdin_of_a_pipeline_is_that_of_its_first_stage() {
    let mut pipeline = cat() | puppet(["cat"]);
    let mut lines = pipeline.lines().unwrap();
    let mut stdin = lines.take_stdin().unwrap();
    stdin.write_all(b"said\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    drop(stdin);
    assert!(lines.next().is_none());
    let mut events = pipeline.events().unwrap();
    events.take_stdin().unwrap().write_all(b"said").unwrap();
    let mut output = Vec::new();
    for event in events {
        if let Event::Stdout(bytes) = event.unwrap() {
            output.extend(bytes);
        }
    }
    assert_eq!(output, b"said");
}

#[watched_test]
fn a_spawned_child_gives_its_events() {
    let spawn = || {
        let mut command = puppet(["cat-both", "exit=4"]);
        command.stdin(Stdio::bytes(flood(1_000_000))).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let check = |events: Vec<Event>| {
        let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Started(_) => assert_eq!(number, 0),
                Event::Stdout(bytes) => out.extend(bytes),
                Event::Stderr(bytes) => err.extend(bytes),
                Event::Exited(ending) => code = ending.status.code(),
                other => panic!("{other:?}"),
            }
        }
        assert!(out == flood(1_000_000) && err == out);
        assert_eq!(code, Some(4));
    };
    check(spawn().read_all_events().map(Result::unwrap).collect());
    one_thread().block_on(async {
        let (mut all, mut events) = (Vec::new(), spawn().read_all_events_async());
        while let Some(event) = events.next().await {
            all.push(event.unwrap());
        }
        check(all);
    });
    // Output that was read before belongs to the caller.
    let mut child = cat().stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let events = child.read_all_events();
    stdin.write_all(b"x").unwrap();
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "x");
    assert_eq!(events.finish().unwrap().status.code(), Some(3));
}
