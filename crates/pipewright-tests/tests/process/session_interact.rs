//! Sessions in the hands of a person. The person is a session of the test, and the program in it hands its terminal on.

use pipewright::{Command, Key, PtySize, Session};
use pipewright_test_macros::watched_test;
use pipewright_tests::alive::KillOnDrop;
use pipewright_tests::pace;
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::watchdog::until;

const SIZE: PtySize = PtySize { rows: 30, cols: 100 };
const PUPPET: &str = env!("CARGO_BIN_EXE_puppet");

/// The two acts of the puppet: a call, and a task.
const ACTS: [&str; 2] = ["interact", "interact-async"];

/// Starts a puppet that hands its terminal to the script.
fn person(act: &str, script: &str) -> Session {
    started(super::puppet([format!("{act}={script}")]))
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
        let mut command = super::puppet([&format!("{act}=stty -echo; cat; echo over")]);
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
        let mut command = super::puppet([format!("{act}=stty -echo; cat; echo over")]);
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
