//! Sessions in the hands of a person. The person is a session of the test, and the program in it hands its terminal on.

use pipewright::{Command, Key, PtySize, Session};
use pipewright_test_macros::watched_test;
use pipewright_tests::alive::KillOnDrop;
use pipewright_tests::pace;
use pipewright_tests::skip::{Need, skipped};

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
