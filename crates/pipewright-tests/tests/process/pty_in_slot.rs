//! Terminals for commands in a slot: their session takes the terminal, and nothing of their tree is left.

use pipewright::{Command, Outcome, Session, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace, watchdog};

use super::pty::{SIZE, shell};
use super::short;
use super::tree_slot::has_no_slots;

const MARK: &str = "PIPEWRIGHT_PTY_SLOT_TEST";

/// Returns a slot, or `None` and the report of it if there is none here.
fn slot() -> Option<TreeSlot> {
    (!has_no_slots()).then(|| TreeSlot::new().unwrap())
}

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
    command.env(MARK, alive::mark("pty-slot-timeout")).contain_in(&slot).timeout(short());
    let capture = command.capture().unwrap();
    assert_eq!((capture.outcome, &*capture.stdout), (Outcome::TimedOut, "started\r\n"));
    watchdog::until("no process is left", || alive::marked(MARK, "pty-slot-timeout").is_empty());
}
