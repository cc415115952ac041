//! Conversations with programs: what a session waits for, types and reports, also in the hands of a person.

use std::time::{Duration, Instant};

use pipewright::{Command, ErrorKind, Key, NotSeen, Pattern, PtySize, Session};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::watchdog::{self, until};
use pipewright_tests::{count, pace};

use crate::pty::{flood_on_a_terminal, shell};
use crate::{puppet, short, with_time};

/// Starts a shell script in a session.
fn script(text: &str) -> Session {
    Session::spawn(&mut shell(text)).unwrap()
}

/// Starts a puppet in a session.
fn actor<const N: usize>(acts: [&str; N]) -> Session {
    Session::spawn(&mut puppet(acts)).unwrap()
}

#[watched_test]
fn each_wait_begins_where_the_last_one_ended() {
    let mut session = actor(["out=one two three"]);
    assert_eq!(session.expect("two").unwrap().before_text(), "one ");
    let rest = session.expect(Pattern::End).unwrap();
    assert_eq!((rest.before_text().as_str(), rest.text().as_str()), (" three", ""));
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn a_prompt_is_answered() {
    let mut session =
        script("printf 'name? '; read name; printf 'age? '; read age; echo $name:$age");
    session.expect("name? ").unwrap();
    session.send_line("Ada").unwrap();
    session.expect("age? ").unwrap();
    session.send_line("36").unwrap();
    session.expect("Ada:36\r\n").unwrap();
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn the_first_of_several_patterns_counts() {
    let mut session = actor(["out=error: no disk\n"]);
    let patterns = [Pattern::from("$ "), Pattern::regex(r"error: (.*)\r\n").unwrap(), Pattern::End];
    let found = session.expect_any(patterns).unwrap();
    assert_eq!((found.index, found.group(1)), (1, Some(&b"no disk"[..])));
}

#[watched_test]
fn a_pattern_that_does_not_come_in_time_is_an_error_with_the_output() {
    let mut session = actor(["out=first line\nlast line", "wait=600"]);
    let error = with_time(short(), |time| {
        session.set_timeout(time);
        let begun = Instant::now();
        let error = session.expect("never").unwrap_err();
        assert!(begun.elapsed() >= time);
        let ErrorKind::NotSeen { wanted, reason, tail } = error.kind() else { panic!("{error}") };
        assert_eq!((wanted.as_str(), *reason), ("\"never\"", NotSeen::TimedOut(time)));
        (tail == "first line\nlast line").then_some(error)
    });
    assert!(error.to_string().ends_with(": last line"), "{error}");
    // Nothing was taken.
    session.expect("first").unwrap();
}

#[watched_test]
fn a_pattern_after_the_end_is_an_error_with_the_end_of_the_output() {
    let mut session = actor(["out-xs=5000", "out=the end"]);
    let error = session.expect("never").unwrap_err();
    let ErrorKind::NotSeen { reason, tail, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((*reason, tail.len()), (NotSeen::Ended, 2048));
    assert!(tail.ends_with("xthe end"));
}

#[watched_test]
fn the_end_of_the_time_can_be_a_match() {
    let mut session = actor(["out=kept", "wait=600"]);
    with_time(short(), |time| {
        session.set_timeout(time);
        let found = session.expect_any([Pattern::End, Pattern::Timeout]).unwrap();
        assert_eq!(found.index, 1);
        (found.before_text() == "kept").then_some(())
    });
    assert_eq!(session.expect("kept").unwrap().before_text(), "");
}

/// A program whose output never pauses. It does not end by itself.
const ENDLESS: &str = "exec yes";

#[watched_test]
fn a_wait_ends_in_time_though_output_never_pauses() {
    let mut session = script(ENDLESS);
    session.set_timeout(short());
    let timed_out = |error: pipewright::Error| {
        let ErrorKind::NotSeen { reason, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*reason, NotSeen::TimedOut(short()));
    };
    timed_out(session.expect("never").unwrap_err());
    timed_out(session.expect(Pattern::regex("never").unwrap()).unwrap_err());
    timed_out(session.expect_end().unwrap_err());
    timed_out(session.expect_no_echo().unwrap_err());
    timed_out(session.wait().unwrap_err());
    let found = session.expect_any([Pattern::from("never"), Pattern::Timeout]).unwrap();
    assert_eq!(found.index, 1);
    // Nobody reads what is typed, and the echo is off, so that the terminal is full.
    session.child().pty().unwrap().set_echo(false).unwrap();
    let error = session.send("x\n".repeat(1_000_000)).unwrap_err();
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
}

#[watched_test]
fn a_task_waits_in_time_though_output_never_pauses() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut session = script(ENDLESS);
    session.set_timeout(short());
    for pattern in [Pattern::from("never"), Pattern::regex("never").unwrap()] {
        let error = runtime.block_on(session.expect_async(pattern)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotSeen { .. }), "{error}");
    }
}

#[watched_test]
fn a_wait_for_the_child_does_not_read_what_others_write_without_end() {
    // The shell ends; the other process holds the terminal, in a session of its own, which no hang-up reaches.
    let mut session = script("setsid yes & echo pid=$!; exit 7");
    let pid = session.expect(Pattern::regex(r"pid=(\d+)\r\n").unwrap()).unwrap();
    assert_eq!(session.wait().unwrap().code(), Some(7));
    drop(session);
    // It ends by the terminal that is gone.
    let pid: u32 = String::from_utf8_lossy(pid.group(1).unwrap()).parse().unwrap();
    watchdog::until("it has ended", || !alive::is_running(pid));
}

#[watched_test]
fn an_end_with_more_than_is_kept_says_so() {
    let mut session = actor(["out-xs=8500000"]);
    // Only the watchdog ends this wait: the default is a matter of the machine's speed.
    let error = session.set_timeout(Duration::MAX).expect_end().unwrap_err();
    assert!(error.to_string().contains("of 8500000 bytes only the last "), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::FileTooLarge);
}

#[watched_test]
fn typing_after_the_end_is_an_error() {
    let mut session = script("exit 3");
    session.expect_end().unwrap();
    let kind = |error: pipewright::Error| std::io::Error::from(error).kind();
    for sent in [session.send("x"), session.send_line("x"), session.send_eof()] {
        assert_eq!(sent.map_err(kind), Err(std::io::ErrorKind::BrokenPipe));
    }
    assert_eq!(session.wait().unwrap().code(), Some(3));
}

#[watched_test]
fn the_timeout_of_the_command_holds_while_a_session_waits() {
    let mut command = puppet(["wait=600"]);
    let mut session = Session::spawn(command.timeout(short())).unwrap();
    // The session's own time is longer.
    let error = session.expect("never").unwrap_err();
    let ErrorKind::NotSeen { reason, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*reason, NotSeen::Ended);
    assert!(!session.wait().unwrap().success());
}

#[watched_test]
fn all_output_arrives_before_the_end() {
    let mut session = actor(["out-bytes=300000"]);
    assert!(session.expect_end().unwrap() == flood_on_a_terminal(300_000));
}

#[watched_test]
fn typing_more_than_the_terminal_holds_does_not_deadlock() {
    // Without the echo, which the terminal drops when it is full. The copy of each line fills the other direction.
    let mut session = actor(["cat"]);
    session.child().pty().unwrap().set_echo(false).unwrap();
    let lines: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    session.send(&lines).unwrap();
    session.send_eof().unwrap();
    let all = String::from_utf8(session.expect_end().unwrap()).unwrap();
    assert!(all == lines.replace('\n', "\r\n"));
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn typing_at_a_program_that_does_not_read_ends_with_the_timeout() {
    let mut session = actor(["wait=600"]);
    session.set_timeout(short());
    let error = session.send("x\n".repeat(100_000)).unwrap_err();
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
}

#[watched_test]
fn a_password_is_typed_once_the_echo_is_off() {
    let mut session = Session::spawn(
        Command::new("bash").args(["-c", "read -s -p 'password: ' word; echo; echo got $word"]),
    )
    .unwrap();
    session.expect("password: ").unwrap();
    session.expect_no_echo().unwrap();
    session.send_line("secret").unwrap();
    let found = session.expect("got secret").unwrap();
    assert_eq!(found.before_text(), "\r\n", "no echo");
}

#[watched_test]
fn an_interrupt_and_an_end_of_input_are_typed() {
    let loops = "echo ready; while :; do sleep 0.02; done";
    let mut session = script(&format!("trap 'echo interrupted; exit' INT; {loops}"));
    session.expect("ready\r\n").unwrap();
    session.send_interrupt().unwrap();
    session.expect("interrupted\r\n").unwrap();
    let mut session = actor(["cat", "out=over"]);
    session.send_line("x").unwrap();
    session.expect("x\r\nx\r\n").unwrap();
    session.send_eof().unwrap();
    session.expect("over").unwrap();
}

#[watched_test]
fn a_resize_reaches_the_program_and_the_screen() {
    let mut session = script("trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done");
    session.expect("ready\r\n").unwrap();
    session.resize(PtySize { rows: 7, cols: 20 }).unwrap();
    session.expect("7 20\r\n").unwrap();
    assert_eq!(session.screen().rows().len(), 7);
}

#[watched_test]
fn a_screen_that_is_too_large_is_an_error() {
    let large = PtySize { rows: u16::MAX, cols: u16::MAX };
    let mut command = puppet(["exit=0"]);
    let error = Session::spawn(command.pty(large)).unwrap_err();
    assert!(error.to_string().contains("at most 1,048,576 characters"), "{error}");
    let mut session = script("read line");
    session.resize(large).unwrap_err();
    // The largest that is kept.
    session.resize(PtySize { rows: 1 << 10, cols: 1 << 10 }).unwrap();
    assert_eq!(session.screen().rows().len(), 1 << 10);
}

#[watched_test]
fn the_screen_is_what_a_person_sees() {
    let acts = [r"printf '\033[2J\033[3;5Hworld\033[3;1Hhi\033[1;1H'; read line"];
    let mut session = script(acts[0]);
    session.expect(Pattern::screen(|screen| screen.contains("hi  world"))).unwrap();
    assert_eq!(session.screen().cursor(), (0, 0));
    assert_eq!(session.screen().rows()[2], "hi  world");
    assert_eq!(session.screen().text().trim(), "hi  world");
    session.send_key(Key::Enter).unwrap();
    assert!(session.wait().unwrap().success());
}

#[watched_test]
fn a_wait_for_the_child_ends_with_the_timeout() {
    let mut session = actor(["out=still here", "wait=600"]);
    with_time(short(), |time| {
        session.set_timeout(time);
        let error = session.wait().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotSeen { .. }), "{error}");
        (session.unread() == b"still here").then_some(())
    });
    session.child().kill().unwrap();
    assert!(!session.wait().unwrap().success());
    assert_eq!(session.unread(), b"still here");
}

#[isolated_test]
fn a_dropped_session_ends_its_program_and_leaves_no_handle() {
    let before = count::handles_at_rest();
    let mut session = script("echo ready; read line; read line");
    session.expect("ready").unwrap();
    let pid = session.child().pid();
    drop(session);
    watchdog::until("the hang-up ends the program", || !alive::is_running(pid));
    watchdog::until("its handles are closed", || count::handles_at_rest() <= before + 1);
}

#[watched_test]
fn sessions_are_driven_by_tasks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut sessions: Vec<_> = (0..pace::rounds(20, 5)).map(|_| actor(["cat"])).collect();
        for (number, session) in sessions.iter_mut().enumerate() {
            session.send_line_async(format!("number {number}")).await.unwrap();
        }
        for (number, session) in sessions.iter_mut().enumerate() {
            let wanted = format!("number {number}\r\nnumber {number}\r\n");
            session.expect_async(wanted.as_str()).await.unwrap();
        }
        let session = &mut sessions[0];
        session.set_timeout(Duration::from_millis(50));
        let waits = session.expect_async("never");
        let error = waits.await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotSeen { .. }), "{error}");
        // A dropped wait takes nothing.
        session.send_line_async("again").await.unwrap();
        session.set_timeout(pace::seconds(60));
        let dropped = session.expect_async("never");
        assert!(tokio::time::timeout(Duration::from_millis(50), dropped).await.is_err());
        session.expect_async("again\r\nagain\r\n").await.unwrap();
    });
}

#[watched_test]
fn an_error_has_the_output_as_a_person_has_seen_it() {
    let draw = r"printf '\033[1;31merror\033[0m: no such unit\r\n 10 %%\r 20 %%\r'; echo end";
    let mut session = script(draw);
    let error = session.expect("never").unwrap_err();
    let ErrorKind::NotSeen { tail, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(tail, "error: no such unit\nend %\n");
    // The screen of a pager is drawn in pieces.
    let draw = r"printf '\033[?1049h\033[2;1Hsecond\033[1;1Hfirst'; sleep 600";
    let mut session = script(draw);
    session.expect(Pattern::screen(|screen| screen.contains("first"))).unwrap();
    session.set_timeout(Duration::from_millis(1));
    let error = session.expect("never").unwrap_err();
    let ErrorKind::NotSeen { tail, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(tail, "first\nsecond");
}

#[watched_test]
fn a_pattern_that_is_not_valid_is_an_error() {
    let error = Pattern::regex("(").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
}

const SIZE: PtySize = PtySize { rows: 30, cols: 100 };
const PUPPET: &str = env!("CARGO_BIN_EXE_puppet");

/// The two acts of the puppet: a call, and a task.
const ACTS: [&str; 2] = ["interact", "interact-async"];

/// Starts a puppet that hands its terminal to the script.
fn person(act: &str, script: &str) -> Session {
    started(crate::puppet([format!("{act}={script}")]))
}

/// Starts a shell on the person's terminal, which runs such a puppet with the first script and then the second one.
fn person_at_a_shell(act: &str, script: &str, then: &str) -> Session {
    let script = format!("\"$0\" \"{act}={script}\"; {then}");
    started(Command::new("sh").args(["-c", &script, PUPPET]).owned())
}

fn started(mut command: Command) -> Session {
    let mut session = Session::spawn(command.pty(SIZE).kill_on_drop()).unwrap();
    session.set_timeout(pace::seconds(60));
    session
}

#[watched_test]
fn typed_text_reaches_the_child_and_its_output_the_person() {
    for act in ACTS {
        let mut person = person(act, "printf 'name? '; read name; echo got $name; stty size");
        person.expect("name? ").unwrap();
        person.send_line("Ada").unwrap();
        let found = person.expect("got Ada\r\n").unwrap();
        assert_eq!(found.before_text(), "Ada\r\n", "one echo: the child's terminal");
        person.expect("30 100\r\n").unwrap();
        person.expect("interact: Ended").unwrap();
        assert!(person.wait().unwrap().success());
    }
}

#[watched_test]
fn keys_that_are_signals_reach_the_child() {
    for act in ACTS {
        let mut person =
            person(act, "trap 'echo caught; exit' INT; echo ready; while :; do sleep 0.02; done");
        person.expect("ready\r\n").unwrap();
        person.send_key(Key::Ctrl('c')).unwrap();
        person.expect("caught\r\n").unwrap();
        person.expect("interact: Ended").unwrap();
    }
}

#[watched_test]
fn the_escape_character_ends_the_interaction() {
    for act in ACTS {
        let mut person = person(act, "echo ready; read line");
        person.expect("ready\r\n").unwrap();
        person.send_key(Key::Ctrl(']')).unwrap();
        person.expect("interact: Escape").unwrap();
        assert!(person.wait().unwrap().success());
    }
}

#[watched_test]
fn a_new_size_of_the_persons_terminal_reaches_the_child() {
    for act in ACTS {
        let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done";
        let mut person = person(act, script);
        person.expect("ready\r\n").unwrap();
        person.resize(PtySize { rows: 12, cols: 34 }).unwrap();
        person.expect("12 34\r\n").unwrap();
    }
}

#[watched_test]
fn the_modes_of_the_terminal_are_restored() {
    for act in ACTS {
        let mut person = person_at_a_shell(act, "stty -a", "echo back; stty -a");
        let child = person.expect("interact: Ended\r\n").unwrap().before_text();
        assert!(child.contains(" icanon"), "the child's own terminal is not raw: {child}");
        person.expect("back\r\n").unwrap();
        let restored = String::from_utf8(person.expect_end().unwrap()).unwrap();
        assert!(restored.contains(" icanon") && restored.contains(" echo "), "{restored}");
    }
}

#[watched_test]
fn the_modes_are_restored_after_a_kill() {
    if Command::new("stty").arg("--version").output().is_err() {
        return skipped(Need::Program("stty"), "there is no stty here");
    }
    for act in ACTS {
        // The puppet is the parent of the inner shell.
        let waits = "until stty -a | grep -q ' icanon'; do sleep 0.02; done; echo restored";
        let mut person = person_at_a_shell(act, r"echo pid=\$PPID.; sleep 600", waits);
        let found = person.expect(pipewright::Pattern::regex(r"pid=(\d+)\.").unwrap()).unwrap();
        let pid = String::from_utf8_lossy(found.group(1).unwrap()).parse().unwrap();
        assert!(!person.child().pty().unwrap().echoes().unwrap(), "raw");
        drop(KillOnDrop(pid));
        person.expect("restored").unwrap();
        assert!(person.child().pty().unwrap().echoes().unwrap());
    }
}

/// The person's shell neither edits its line nor sets modes after a stop.
#[watched_test]
fn the_terminal_is_raw_again_after_a_stop_and_has_the_new_size() {
    for (act, signal) in [(0, "TSTP"), (0, "STOP"), (1, "TSTP"), (1, "STOP")] {
        let mut shell = Command::new("sh").args(["-i", "+o", "emacs"]).owned();
        shell.env("PS1", "$ ").env_remove("ENV");
        let mut person = started(shell);
        person.expect("$ ").unwrap();
        let asks = "stty -echo; printf pid=%s. $PPID; read x; echo got $x; stty size";
        person.send_line(format!("'{PUPPET}' '{}={asks}'", ACTS[act])).unwrap();
        let found = person.expect(pipewright::Pattern::regex(r"pid=(\d+)\.").unwrap()).unwrap();
        let pid = String::from_utf8_lossy(found.group(1).unwrap()).into_owned();
        assert!(!person.child().pty().unwrap().echoes().unwrap(), "raw");
        Command::new("kill").args(["-s", signal, &pid]).run().unwrap();
        person.expect("Stopped").unwrap();
        person.expect("$ ").unwrap();
        assert_eq!(person.child().pty().unwrap().echoes().unwrap(), signal == "TSTP");
        person.resize(PtySize { rows: 12, cols: 34 }).unwrap();
        // As shells do that edit their line.
        person.send("stty sane; fg\n").unwrap();
        // The shell tells which job it continues.
        person.expect("interact").unwrap();
        until("the terminal is raw", || !person.child().pty().unwrap().echoes().unwrap());
        person.send("secret\r").unwrap();
        let shown = person.expect("got secret\r\n").unwrap().before_text();
        assert!(!shown.contains("secret"), "{shown:?}");
        person.expect("12 34\r\n").unwrap();
        person.expect("interact: Ended").unwrap();
        person.expect("$ ").unwrap();
        assert!(person.child().pty().unwrap().echoes().unwrap());
    }
}

/// The guard restores modes when its pipe is closed.
#[cfg(target_os = "linux")]
#[watched_test]
fn the_guard_is_killed_before_its_pipe_is_closed() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "it delays the kill");
    }
    let dir = tempfile::tempdir().unwrap();
    let (calls, stty) = (dir.path().join("calls"), dir.path().join("stty"));
    let real = Command::new("sh").args(["-c", "command -v stty"]).read().unwrap();
    let script = format!("#!/bin/sh\necho \"$*\" >> {}\nexec {real} \"$@\"\n", calls.display());
    std::fs::write(&stty, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&stty, mode).unwrap();
    let path = std::env::var("PATH").unwrap();
    for act in ACTS {
        let mut command =
            Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "-e"]).owned();
        command.args(["trace=kill,pidfd_send_signal", "-e"]);
        command.args(["inject=kill,pidfd_send_signal:delay_enter=1000000", PUPPET]);
        command.arg(format!("{act}=true")).env("PATH", format!("{}:{path}", dir.path().display()));
        let mut person = started(command);
        person.expect("interact: Ended").unwrap();
        assert!(person.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(calls).unwrap(), "-g\n-g\n");
}

#[watched_test]
fn without_a_terminal_stdin_is_typed_until_its_end() {
    for act in ACTS {
        let mut command = crate::puppet([&format!("{act}=stty -echo; cat; echo over")]);
        command.stdin(pipewright::Stdio::bytes("typed\n"));
        let capture = command.capture().unwrap();
        assert!(capture.stdout.contains("typed\r\n"), "{}", capture.stdout);
        assert!(capture.stdout.ends_with("over\r\ninteract: Ended\n"), "{}", capture.stdout);
    }
}

#[watched_test]
fn a_file_as_stdin_and_as_stdout_works_too() {
    for act in ACTS {
        let dir = tempfile::tempdir().unwrap();
        let (typed, shown) = (dir.path().join("typed"), dir.path().join("shown"));
        std::fs::write(&typed, "typed\n").unwrap();
        let mut command = crate::puppet([format!("{act}=stty -echo; cat; echo over")]);
        command.stdin(pipewright::Stdio::open(&typed)).stdout(pipewright::Stdio::create(&shown));
        command.run().unwrap();
        let shown = std::fs::read_to_string(&shown).unwrap();
        assert!(shown.contains("typed\r\n"), "{act}: {shown}");
        assert!(shown.ends_with("over\r\ninteract: Ended\n"), "{act}: {shown}");
    }
}

#[watched_test]
fn the_escape_character_is_seen_while_the_child_reads_nothing() {
    for act in ACTS {
        // In raw mode the terminal holds 4 KiB of input at most.
        let mut person = person(act, "stty raw -echo; echo ready; sleep 600");
        person.expect("ready").unwrap();
        person.send(vec![b'x'; 20 << 10]).unwrap();
        person.send_key(Key::Ctrl(']')).unwrap();
        person.expect("interact: Escape").unwrap();
    }
}
