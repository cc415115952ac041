//! Terminals for children: every verb, every byte, typing and resizing, and what is a terminal and what is not.

use std::io::{Read as _, Write as _};
use std::time::Instant;

use pipewright::{
    Child, Command, Contain, ErrorKind, Event, Limit, Linger, Outcome, PipeReader, Pty, PtySize,
    Scope, Session, Source, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::{count, pace, watchdog};

use crate::tree_slot::slot;
use crate::{cannot_supervise, puppet, short, with_time};

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
    with_time(short(), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        assert!(!alive::is_running(capture.pid));
        (capture.stdout == "so far").then_some(())
    });
}

#[watched_test]
fn an_idle_timeout_sees_the_output() {
    let mut command = actor(["out=1", "wait=0.1", "out=2", "wait=0.1", "out=3", "wait=600"]);
    with_time(short(), |time| {
        let begun = Instant::now();
        let capture = command.idle_timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::IdleTimedOut);
        assert!(begun.elapsed() >= time);
        (capture.stdout == "123").then_some(())
    });
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
        let mut lines = actor(["lines=2"]).lines_async().unwrap();
        let mut texts = Vec::new();
        while let Some(line) = lines.next().await {
            texts.push(line.unwrap().text);
        }
        assert_eq!(texts, ["line 0", "line 1"]);
    });
    let mut command = actor(["out=so far", "wait=600"]);
    with_time(short(), |time| {
        let capture = runtime.block_on(command.timeout(time).capture_async()).unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        (capture.stdout == "so far").then_some(())
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
    read_until(child.stdout.as_ref().unwrap(), "ready");
    drop(child);
    watchdog::until("the hang-up ends the child", || !alive::is_running(pid.0));
}

/// Reads until the text has come, and returns everything up to its end.
#[track_caller]
fn read_until(reader: &PipeReader, text: &str) -> String {
    let mut all = Vec::with_capacity(4096);
    loop {
        let so_far = String::from_utf8_lossy(&all);
        if let Some(at) = so_far.find(text) {
            return so_far[..at + text.len()].to_owned();
        }
        let so_far = so_far.into_owned();
        all.reserve(4096);
        assert_ne!(reader.read_spare(&mut all).unwrap(), 0, "never {text:?} after {so_far:?}");
    }
}

/// Starts a child, and returns it with a reader and a writer of its terminal.
fn start(mut command: Command) -> (Child, PipeReader, pipewright::PipeWriter) {
    let child = command.spawn().unwrap();
    let pty = child.pty().unwrap();
    let (reader, writer) = (pty.reader().unwrap(), pty.writer().unwrap());
    (child, reader, writer)
}

fn pty(child: &Child) -> &Pty {
    child.pty().unwrap()
}

#[watched_test]
fn typed_text_is_echoed_and_read() {
    let (child, reader, mut writer) = start(shell("read line; echo \"got $line\""));
    writer.write_all(b"hello\n").unwrap();
    assert_eq!(read_until(&reader, "got hello\r\n"), "hello\r\ngot hello\r\n");
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn the_reader_finds_the_end_after_the_last_byte() {
    let (child, mut reader, _writer) = start(puppet(["out-bytes=100000"]).pty(SIZE).owned());
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == flood_on_a_terminal(100_000));
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn a_resize_is_seen_by_the_child() {
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done";
    let (child, reader, _writer) = start(shell(script));
    read_until(&reader, "ready\r\n");
    assert_eq!(pty(&child).window_size().unwrap(), SIZE);
    let size = PtySize { rows: 50, cols: 132 };
    pty(&child).resize(size).unwrap();
    read_until(&reader, "50 132\r\n");
    assert_eq!(pty(&child).window_size().unwrap(), size);
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn an_interrupt_reaches_the_foreground_job() {
    let script = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.02; done";
    let (child, reader, _writer) = start(shell(script));
    read_until(&reader, "ready\r\n");
    pty(&child).send_interrupt().unwrap();
    read_until(&reader, "interrupted\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[watched_test]
fn the_end_of_the_input_can_be_typed() {
    let (child, reader, mut writer) = start(Command::new("cat").pty(SIZE).owned());
    writer.write_all(b"one\n").unwrap();
    read_until(&reader, "one\r\none\r\n");
    pty(&child).send_eof().unwrap();
    assert!(child.wait().unwrap().success());
}

#[watched_test]
fn echo_can_be_switched_off() {
    let child = shell("read line; echo \"got $line\"").spawn().unwrap();
    assert!(pty(&child).echoes().unwrap());
    pty(&child).set_echo(false).unwrap();
    assert!(!pty(&child).echoes().unwrap());
    pty(&child).writer().unwrap().write_all(b"secret\n").unwrap();
    assert_eq!(child.read_all_text().unwrap().stdout, "got secret\r\n");
}

#[watched_test]
fn a_full_input_does_not_block_a_control_character() {
    let (child, _reader, _writer) = start(puppet(["wait=600"]).pty(SIZE).owned());
    let full = error_when_full(pty(&child));
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Types until nothing more fits, and returns the error.
fn error_when_full(pty: &Pty) -> std::io::Error {
    pty.set_echo(false).unwrap();
    let writer = pty.writer().unwrap();
    loop {
        // A line with its end: the terminal drops what exceeds a line without one.
        if let Err(error) = writer.try_write(&[b"x".repeat(1000), b"\n".to_vec()].concat()) {
            return error;
        }
    }
}

#[watched_test]
fn output_is_read_by_the_verbs_of_the_child() {
    let child = puppet(["out-bytes=50000", "exit=2"]).pty(SIZE).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout == flood_on_a_terminal(50_000));
    assert_eq!(output.status.code(), Some(2));
    let child = puppet(["lines=2"]).pty(SIZE).spawn().unwrap();
    let lines: Vec<_> = child.read_all_lines().unwrap().map(|line| line.unwrap().text).collect();
    assert_eq!(lines, ["line 0", "line 1"]);
}

#[watched_test]
fn tasks_type_and_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let child = puppet(["cat"]).pty(SIZE).spawn().unwrap();
        pty(&child).set_echo(false).unwrap();
        let mut writer = pty(&child).writer().unwrap().into_async().unwrap();
        let mut reader = pty(&child).reader().unwrap().into_async().unwrap();
        for round in 0..100 {
            let line = format!("line {round}\n");
            writer.write_all(line.as_bytes()).await.unwrap();
            let mut back = vec![0; line.len() + 1];
            reader.read_exact(&mut back).await.unwrap();
            assert_eq!(String::from_utf8(back).unwrap(), line.replace('\n', "\r\n"));
        }
        pty(&child).send_eof().unwrap();
        assert!(child.wait_async().await.unwrap().success());
        assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 0);
    });
}

#[isolated_test]
fn a_spawned_child_leaves_no_handle() {
    let one = || {
        let (child, mut reader, writer) = start(puppet(["out=x"]).pty(SIZE).owned());
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(child.wait().unwrap().success());
        drop(writer);
    };
    one();
    let before = count::handles_at_rest();
    for _ in 0..20 {
        one();
        let error = Command::new("/no/such/program").pty(SIZE).spawn().unwrap_err();
        assert!(matches!(error.kind(), pipewright::ErrorKind::NotFound { .. }));
    }
    watchdog::until("all handles are closed", || count::handles_at_rest() == before);
}

const MARK: &str = "PIPEWRIGHT_PTY_SLOT_TEST";

#[isolated_test]
fn each_command_of_a_slot_has_its_own_controlling_terminal() {
    let Some(slot) = slot() else { return };
    // The first command makes what stays open.
    shell("true").contain_in(&slot).status().unwrap();
    let handles = count::handles();
    for round in 0..20 {
        let script = format!(
            "echo {round} > /dev/tty; stty size; ps -o pid=,sid=,tpgid= -p $$; exit {round}"
        );
        let capture = shell(&script).contain_in(&slot).capture().unwrap();
        assert_eq!(capture.status.code(), Some(round));
        assert_eq!(capture.containment, slot.containment());
        let words: Vec<_> = capture.stdout.split_whitespace().collect();
        assert_eq!(words[..3], [&*round.to_string(), "30", "100"]);
        assert_eq!(words[3..], [&*capture.pid.to_string(); 3]);
    }
    assert_eq!(count::handles(), handles);
}

#[watched_test]
fn a_terminal_that_is_only_stderr_is_the_controlling_one_too() {
    let Some(slot) = slot() else { return };
    let mut command = shell("echo out; echo err >&2; echo tty > /dev/tty");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).contain_in(&slot);
    let capture = command.capture().unwrap();
    assert_eq!((&*capture.stdout, &*capture.stderr), ("out\n", "err\r\ntty\r\n"));
}

#[watched_test]
fn keys_reach_a_session_in_a_slot_and_its_daemons_are_killed() {
    let Some(slot) = slot() else { return };
    let script = "setsid sleep 600 & trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done";
    let mut command = Command::new("bash");
    let mut session =
        Session::spawn(command.args(["-c", script]).pty(SIZE).contain_in(&slot)).unwrap();
    session.set_timeout(pace::seconds(60));
    session.expect("ready").unwrap();
    session.send_interrupt().unwrap();
    session.expect("caught").unwrap();
    assert_eq!(session.wait().unwrap().code(), Some(3));
    drop(session);
    // The slot takes the next command once nothing of the last one is left.
    let capture = shell("echo next").contain_in(&slot).capture().unwrap();
    assert_eq!(&*capture.stdout, "next\r\n");
}

#[watched_test]
fn a_timeout_ends_the_tree_of_a_terminal_in_a_slot() {
    let Some(slot) = slot() else { return };
    let script = "echo started; setsid sleep 600 & sleep 600";
    let mut command = shell(script);
    command.env(MARK, alive::mark("pty-slot-timeout")).contain_in(&slot);
    with_time(short(), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        watchdog::until("no process is left", || {
            alive::marked(MARK, "pty-slot-timeout").is_empty()
        });
        (&*capture.stdout == "started\r\n").then_some(())
    });
}

/// Terminals that cannot be opened: typed errors, and no child.
#[cfg(target_os = "linux")]
mod refused {
    use std::fs;

    use pipewright::{Command, ErrorKind, PtySize};
    use pipewright_test_macros::isolated_test;
    use pipewright_tests::{count, mounts, skip};
    use rustix::mount::{MountFlags, mount, mount_bind};

    use super::SIZE;

    fn on_a_terminal(script: &str) -> Command {
        Command::new("sh").args(["-c", script]).pty(SIZE).owned()
    }

    /// Returns true, and reports it, if this process cannot have mounts of its own.
    fn cannot_mount() -> bool {
        match mounts::private() {
            Ok(()) => false,
            Err(lack) => {
                lack.skip();
                true
            }
        }
    }

    #[isolated_test]
    fn without_a_ptmx_the_error_says_so() {
        if cannot_mount() {
            return;
        }
        let before = count::handles();
        // Something else has its name.
        mount_bind("/dev/null", "/dev/ptmx").unwrap();
        let error = on_a_terminal("echo").capture().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported);
        let words =
            "cannot start \"sh\": cannot open a terminal: this system has no pseudo-terminals: ";
        assert!(error.to_string().starts_with(words), "{error}");
        // Nothing has it.
        mount("none", "/dev", "tmpfs", MountFlags::empty(), None).unwrap();
        let error = on_a_terminal("echo").capture().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported);
        assert!(error.to_string().ends_with("No such file or directory (os error 2)"), "{error}");
        assert_eq!(count::handles(), before);
        assert!(count::children().is_empty());
    }

    /// Mounts a devpts that has terminals for nobody else.
    fn mount_own_devpts(max: u32) -> rustix::io::Result<()> {
        let options =
            std::ffi::CString::new(format!("newinstance,ptmxmode=0666,max={max}")).unwrap();
        mount("devpts", "/dev/pts", "devpts", MountFlags::empty(), Some(options.as_c_str()))?;
        if fs::read_link("/dev/ptmx").is_ok() {
            return Ok(());
        }
        mount_bind("/dev/pts/ptmx", "/dev/ptmx")
    }

    #[isolated_test]
    fn when_all_terminals_are_in_use_the_error_is_a_limit() {
        if cannot_mount() {
            return;
        }
        if let Err(error) = mount_own_devpts(2) {
            return skip::skipped(skip::Need::Mount, format_args!("no devpts: {error}"));
        }
        let used = [0, 1].map(|_| on_a_terminal("read line").spawn().unwrap());
        let before = count::handles();
        let error = on_a_terminal("echo").capture().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Limit { what: "too many terminals" });
        let words = "cannot start \"sh\": cannot open a terminal: too many terminals (os error 28)";
        assert_eq!(error.to_string(), words);
        assert_eq!(count::handles(), before);
        drop(used);
    }

    #[isolated_test]
    fn a_devpts_of_its_own_works_until_it_is_hidden() {
        if cannot_mount() {
            return;
        }
        if let Err(error) = mount_own_devpts(10) {
            return skip::skipped(skip::Need::Mount, format_args!("no devpts: {error}"));
        }
        let capture = on_a_terminal("test -t 0 && test -t 1 && echo seen > /dev/tty").capture();
        assert_eq!(capture.unwrap().stdout, "seen\r\n");
        mount("none", "/dev/pts", "tmpfs", MountFlags::empty(), None).unwrap();
        let error = on_a_terminal("echo").capture().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported, "{error}");
    }

    #[isolated_test]
    fn a_child_of_another_user_has_the_terminal() {
        if !skip::is_root() {
            return skip::skipped(skip::Need::Root, "only root can change the user");
        }
        let size = PtySize { rows: 5, cols: 9 };
        let mut command = Command::new("sh");
        command.args(["-c", "id -u; stty size; echo tty > /dev/tty"]).uid(65534).pty(size);
        assert_eq!(command.capture().unwrap().stdout, "65534\r\n5 9\r\ntty\r\n");
    }

    #[isolated_test]
    fn an_ordinary_user_can_open_terminals() {
        if !skip::is_root() {
            return skip::skipped(skip::Need::Root, "the other tests do this already");
        }
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).unwrap();
        let capture = on_a_terminal("id -u; stty size; echo tty > /dev/tty").capture().unwrap();
        assert_eq!(capture.stdout, "65534\r\n30 100\r\ntty\r\n");
    }
}
