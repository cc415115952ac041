//! Terminals for children: every verb, every byte, and what is a terminal and what is not.

use std::time::Instant;

use pipewright::{
    Command, Contain, ErrorKind, Event, Limit, Linger, Outcome, PtySize, Scope, Source, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::{count, pace, watchdog};

use super::{cannot_supervise, puppet, short};

pub(super) const SIZE: PtySize = PtySize { rows: 30, cols: 100 };

/// Returns a shell on a terminal.
pub(super) fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script]).pty(SIZE).owned()
}

/// Returns a puppet on a terminal.
fn actor<const N: usize>(acts: [&str; N]) -> Command {
    puppet(acts).pty(SIZE).owned()
}

/// Returns the bytes of a flood, as a terminal writes them.
pub(super) fn flood_on_a_terminal(count: usize) -> Vec<u8> {
    let mut expected = Vec::with_capacity(count + count / 200);
    for byte in (0..count).map(|at| (at % 251) as u8) {
        if byte == b'\n' {
            expected.push(b'\r');
        }
        expected.push(byte);
    }
    expected
}

#[watched_test]
fn the_streams_are_one_terminal_of_that_size() {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size";
    assert_eq!(shell(script).capture().unwrap().stdout, "30 100\r\n");
}

#[watched_test]
fn the_terminal_is_the_controlling_one_of_a_new_session() {
    let script = "echo in session > /dev/tty; ps -o pid=,sid=,tpgid= -p $$";
    let capture = shell(script).capture().unwrap();
    let mut words = capture.stdout.split_whitespace();
    assert_eq!((words.next(), words.next()), (Some("in"), Some("session")));
    let numbers: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers, [capture.pid; 3]);
}

#[watched_test]
fn the_child_has_no_other_handle() {
    assert_eq!(actor(["handles"]).read().unwrap().lines().count(), 3);
}

#[watched_test]
fn stdout_and_stderr_come_in_their_order() {
    let mut command = actor(["out=a", "err=b", "out=c", "exit=3"]);
    // On a slow machine, the end of the terminal may come later than the default waits for it.
    let capture = command.linger(Linger::UntilEof).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("abc", ""));
    assert_eq!(capture.status.code(), Some(3));
    assert!(capture.stderr_bytes.is_none() && !capture.held_open);
}

#[watched_test]
fn stderr_can_be_kept_apart() {
    let script = "test -t 1 && test ! -t 2 && echo out; echo err >&2";
    let capture = shell(script).stderr(Stdio::piped()).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("out\r\n", "err\n"));
}

#[watched_test]
fn stdout_can_be_kept_apart() {
    let script = "test ! -t 1 && test -t 2 && echo out; echo err >&2";
    let capture = shell(script).stdout(Stdio::piped()).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("out\n", "err\r\n"));
}

#[watched_test]
fn a_stdin_that_is_set_is_not_the_terminal() {
    let script = "test ! -t 0 && test -t 1 && cat";
    let mut command = shell(script);
    assert_eq!(command.stdin(Stdio::bytes("text\n")).capture().unwrap().stdout, "text\r\n");
    assert_eq!(command.stdin(Stdio::null()).capture().unwrap().stdout, "");
}

#[watched_test]
fn a_capture_types_the_end_of_the_input() {
    let capture = actor(["cat", "out=end"]).capture().unwrap();
    assert_eq!(capture.stdout, "end");
}

#[watched_test]
fn every_byte_of_a_flood_arrives() {
    for count in [1, 4094, 4095, 4096, 70_000, 1 << 20] {
        let mut command = actor([&format!("out-bytes={count}") as &str]);
        let output = command.linger(Linger::UntilEof).output().unwrap();
        assert!(output.stdout == flood_on_a_terminal(count), "{count}");
        assert!(!output.held_open);
    }
}

/// `PIPEWRIGHT_TEST_TERMINALS=10000` runs that many children; that took 25 s with two processors.
#[isolated_test]
fn no_byte_of_a_short_child_is_lost_and_no_handle_is_left() {
    let asked = std::env::var("PIPEWRIGHT_TEST_TERMINALS").ok();
    let rounds = asked.and_then(|text| text.parse().ok()).unwrap_or_else(|| pace::rounds(600, 60));
    actor(["exit=0"]).status().unwrap();
    let before = count::handles_at_rest();
    for round in 0..rounds {
        // From 1 byte to 256 KiB, in no order.
        let bytes = round * 7919 % (256 << 10) + 1;
        let linger = [Linger::default(), Linger::StopAtExit, Linger::UntilEof][round % 3];
        let mut command = actor([&format!("out-xs={bytes}") as &str]);
        let capture = command.linger(linger).capture().unwrap();
        assert_eq!(capture.stdout_bytes, Some(bytes as u64), "round {round}, {linger:?}");
        assert!(!capture.held_open || linger != Linger::UntilEof);
    }
    assert_eq!(count::handles_at_rest(), before);
    assert!(count::children().is_empty());
}

#[watched_test]
fn lines_lose_their_carriage_returns() {
    let lines = actor(["lines=3", "err=last"]).lines().unwrap();
    let lines: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(lines.iter().all(|line| line.source == Source::Stdout));
    let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["line 0", "line 1", "line 2", "last"]);
}

#[watched_test]
fn events_have_the_output_and_the_end() {
    let (mut written, mut code) = (Vec::new(), None);
    for event in actor(["out-bytes=20000", "exit=4"]).events().unwrap() {
        match event.unwrap() {
            Event::Stdout(bytes) => written.extend(bytes),
            Event::Exited(ending) => code = ending.status.code(),
            _ => {}
        }
    }
    assert!(written == flood_on_a_terminal(20_000));
    assert_eq!(code, Some(4));
}

#[watched_test]
fn a_timeout_keeps_the_output_so_far() {
    let mut command = actor(["out=so far", "wait=600"]);
    let capture = command.timeout(short()).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::TimedOut, "so far"));
    assert!(!alive::is_running(capture.pid));
}

#[watched_test]
fn an_idle_timeout_sees_the_output() {
    let mut command = actor(["out=1", "wait=0.1", "out=2", "wait=0.1", "out=3", "wait=600"]);
    let begun = Instant::now();
    let capture = command.idle_timeout(short()).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::IdleTimedOut, "123"));
    assert!(begun.elapsed() >= short());
}

#[watched_test]
fn a_limit_ends_a_child_that_writes_too_much() {
    let mut command = actor(["out-bytes=1000000000"]);
    let capture = command.limit(Limit::fail(10_000)).output().unwrap();
    assert_eq!((capture.outcome, capture.stdout.len()), (Outcome::LimitExceeded, 10_000));
}

#[watched_test]
fn an_output_that_is_stopped_by_ctrl_s_delays_no_timeout() {
    let mut command = actor(["out=begun", "out-bytes=1000000000"]);
    let child = command.timeout(short()).spawn().unwrap();
    std::io::Write::write_all(&mut child.pty().unwrap().writer().unwrap(), b"\x13").unwrap();
    let output = child.read_all_bytes().unwrap();
    assert_eq!(output.outcome, Outcome::TimedOut);
    assert!(!alive::is_running(output.pid));
}

/// Returns the grandchild, whose pid is the first line, and what follows that line.
fn daemon_and_rest(output: &[u8]) -> (KillOnDrop, &[u8]) {
    let end = output.iter().position(|byte| *byte == b'\n').unwrap();
    let pid = String::from_utf8_lossy(&output[..end]);
    (KillOnDrop(pid.trim().parse().unwrap()), &output[end + 1..])
}

#[watched_test]
fn a_daemon_on_the_terminal_delays_nothing_and_is_reported() {
    let acts = ["ignore=HUP", "spawn=wait=600", "out-bytes=30000", "out=last words"];
    let capture = actor(acts).output().unwrap();
    let (daemon, rest) = daemon_and_rest(&capture.stdout);
    assert!(capture.held_open);
    assert!(rest == [flood_on_a_terminal(30_000), b"last words".to_vec()].concat());
    assert!(alive::is_running(daemon.0), "the daemon keeps running");
}

#[watched_test]
fn stop_at_exit_reads_all_that_was_written_before() {
    let acts = ["ignore=HUP", "spawn=wait=600", "out-bytes=30000"];
    let mut command = actor(acts);
    let capture = command.linger(Linger::StopAtExit).output().unwrap();
    let (_daemon, rest) = daemon_and_rest(&capture.stdout);
    assert!(capture.held_open);
    assert!(rest == flood_on_a_terminal(30_000));
}

#[watched_test]
fn a_terminal_that_the_child_closes_and_opens_again_stays() {
    let script = "echo before; exec < /dev/null > /dev/null 2>&1; sleep 0.1; \
                  echo between > /dev/tty; sleep 0.1; echo after > /dev/tty; exit 5";
    let capture = shell(script).capture().unwrap();
    assert_eq!(capture.stdout, "before\r\nbetween\r\nafter\r\n");
    assert_eq!(capture.status.code(), Some(5));
}

#[watched_test]
fn the_tree_on_the_terminal_ends_with_the_call() {
    // The hang-up at the end of the shell must not be what ends it.
    let script = "trap '' HUP; setsid sleep 600 > /dev/null 2>&1 & echo started";
    let capture = shell(script).contain(Contain::Tree).capture().unwrap();
    assert_eq!(capture.stdout, "started\r\n");
    if capture.containment != pipewright::Containment::Group {
        assert_eq!(capture.leftovers_killed, 1);
    }
}

#[watched_test]
fn a_supervised_child_has_its_terminal() {
    if cannot_supervise() {
        return;
    }
    let script = "test -t 0 && stty size; echo to the terminal > /dev/tty";
    let capture = shell(script).kill_on_parent_exit(Scope::Tree).capture().unwrap();
    assert_eq!(capture.stdout, "30 100\r\nto the terminal\r\n");
    let capture = shell(script).kill_on_parent_exit(Scope::Child).capture().unwrap();
    assert_eq!(capture.stdout, "30 100\r\nto the terminal\r\n");
}

#[watched_test]
fn run_quotes_the_end_of_the_terminals_output() {
    let error = shell("echo no disk >&2; exit 3").run().unwrap_err();
    assert_eq!(error.to_string(), r#""sh" failed: exit status: 3: no disk"#);
    assert_eq!(shell("echo value").read().unwrap(), "value");
}

#[watched_test]
fn a_tee_of_stdout_copies_the_terminal() {
    let mut command = shell("test -t 1 && echo seen");
    let file = tempfile::NamedTempFile::new().unwrap();
    let capture = command.stdout(Stdio::tee_to(Stdio::create(file.path()))).capture().unwrap();
    assert_eq!(capture.stdout, "seen\r\n");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "seen\r\n");
}

#[watched_test]
fn many_terminals_run_on_one_thread() {
    let many = pace::rounds(200, 20);
    let commands = (0..many).map(|number| shell(&format!("echo {number}; test -t 0")));
    let captures = pipewright::run_all(commands).concurrency(many).captures();
    for (number, capture) in captures.into_iter().enumerate() {
        let capture = capture.unwrap();
        assert_eq!((capture.stdout, capture.status.code()), (format!("{number}\r\n"), Some(0)));
    }
}

/// Returns true if this process can have that many handles.
#[cfg(target_os = "linux")]
fn can_open(handles: u64) -> bool {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.is_none_or(|limit| limit >= handles)
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_thousand_terminals_at_once_take_no_thread() {
    let many = pace::rounds(1000, 50);
    if !can_open(4 * many as u64 + 100) {
        return skipped(Need::Handles, "this process may not open enough handles");
    }
    let threads = alive_threads();
    let start = |_| shell("read line; test -t 0 && echo here").spawn().unwrap();
    let children: Vec<_> = (0..many).map(start).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut captures = tokio::task::JoinSet::new();
        for child in children {
            // All run by now, and end only after this.
            std::io::Write::write_all(&mut child.pty().unwrap().writer().unwrap(), b"\n").unwrap();
            captures.spawn(child.read_all_text_async());
        }
        while let Some(capture) = captures.join_next().await {
            assert_eq!(capture.unwrap().unwrap().stdout, "\r\nhere\r\n");
        }
    });
    assert_eq!(alive_threads(), threads);
}

#[cfg(target_os = "linux")]
fn alive_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[watched_test]
fn async_verbs_read_terminals() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let output = actor(["out-bytes=300000"]).output_async().await.unwrap();
        assert!(output.stdout == flood_on_a_terminal(300_000));
        let mut command = actor(["out=so far", "wait=600"]);
        let capture = command.timeout(short()).capture_async().await.unwrap();
        assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::TimedOut, "so far"));
        let mut lines = actor(["lines=2"]).lines_async().unwrap();
        let mut texts = Vec::new();
        while let Some(line) = lines.next().await {
            texts.push(line.unwrap().text);
        }
        assert_eq!(texts, ["line 0", "line 1"]);
    });
}

#[watched_test]
fn settings_that_contradict_a_terminal_are_refused() {
    let words = |error: pipewright::Error| {
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
        error.to_string()
    };
    let wanted = |reason: &str| format!("cannot start \"sh\": {reason}");
    let error = shell("").detached().status().unwrap_err();
    assert_eq!(words(error), wanted("`pty` and `detached` contradict each other"));
    let error = shell("").foreground().status().unwrap_err();
    assert_eq!(words(error), wanted("`pty` and `foreground` contradict each other"));
    let error = shell("").process_group(1).status().unwrap_err();
    assert_eq!(words(error), wanted("`pty` starts a session, so no process group can be set"));
    let error = shell("").start_and_forget().unwrap_err();
    assert!(words(error).contains("needs a call that reads the terminal"));
    let error = (shell("") | Command::new("cat")).capture().unwrap_err();
    assert_eq!(words(error), wanted("`pty` is not supported for a stage of a pipeline"));
    let error = shell("").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap_err();
    assert_eq!(words(error), wanted("with `pty`, stdout or stderr has to be the terminal"));
}

#[watched_test]
fn a_program_that_is_not_there_leaves_no_terminal() {
    let error = Command::new("no-such-program").pty(SIZE).capture().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
}

#[watched_test]
fn a_dropped_child_loses_its_terminal() {
    let mut command = shell("trap 'exit 0' HUP; echo ready; while :; do sleep 0.02; done");
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    let pid = KillOnDrop(child.pid());
    super::pty_child::read_until(child.stdout.as_ref().unwrap(), "ready");
    drop(child);
    watchdog::until("the hang-up ends the child", || !alive::is_running(pid.0));
}
