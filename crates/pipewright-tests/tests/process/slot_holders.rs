//! The supervisor of a slot does not answer, or cannot: it is stopped by its own command, or its messages find no room.

use std::time::Duration;

use pipewright::{Child, Command, Outcome, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_root, skipped};
use pipewright_tests::{alive, pace, watchdog};

use super::tree_slot::has_no_slots;

const MARK: &str = "PIPEWRIGHT_SLOT_HOLDERS_TEST";

/// Returns a script in the slot. Its parent is the supervisor.
fn script(slot: &TreeSlot, mark: &str, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(MARK, alive::mark(mark)).contain_in(slot);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

#[watched_test]
fn a_stopped_supervisor_holds_up_no_timeout() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    for grace in [Duration::ZERO, pace::millis(200)] {
        let mut command = script(&slot, "timeout", "sleep 600 & kill -STOP $PPID; wait");
        command.timeout(pace::millis(500)).kill_grace(grace);
        assert_eq!(command.output().unwrap().outcome, Outcome::TimedOut);
        watchdog::until("no process is left", || alive::marked(MARK, "timeout").is_empty());
        assert_eq!(script(&slot, "timeout", "echo next").read().unwrap(), "next");
    }
}

/// Stops the guard, and then the supervisor, which the guard would continue.
fn stop_holders(child: &Child) {
    let supervisor = alive::parent(child.id()).unwrap();
    for pid in [alive::parent(supervisor).unwrap(), supervisor] {
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSTOP) }, 0);
        watchdog::until("it is stopped", || alive::state(pid) == Some('T'));
    }
}

#[watched_test]
fn a_stopped_supervisor_goes_on_without_a_timeout() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    for _ in 0..pace::rounds(30, 5) {
        assert_eq!(script(&slot, "goes on", "kill -STOP $PPID; echo x").read().unwrap(), "x");
    }
}

#[watched_test]
fn stopped_holders_hold_up_no_timeout() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    let mut command = script(&slot, "holders", "sleep 600 & wait");
    command.timeout(pace::seconds(1)).kill_grace(Duration::ZERO);
    let child = command.spawn().unwrap();
    stop_holders(&child);
    assert_eq!(child.read_all_bytes().unwrap().outcome, Outcome::TimedOut);
    watchdog::until("no process is left", || alive::marked(MARK, "holders").is_empty());
    assert_eq!(script(&slot, "holders", "echo next").read().unwrap(), "next");
}

#[watched_test]
fn a_command_that_stops_its_supervisor_and_ends_does_not_cost_the_next_one_its_start() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    let mut command = script(&slot, "leftover", "sleep 600 & echo; kill -STOP $PPID; read line");
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
    let mut byte = Vec::with_capacity(1);
    child.stdout.take().unwrap().read_spare(&mut byte).unwrap();
    drop(child);
    assert_eq!(script(&slot, "leftover", "echo next").read().unwrap(), "next");
    watchdog::until("no process is left", || alive::marked(MARK, "leftover").is_empty());
}

#[watched_test]
fn any_number_of_kills_in_a_slot_returns_at_once() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    let child = script(&slot, "kills", "sleep 600").spawn().unwrap();
    stop_holders(&child);
    for _ in 0..2000 {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    drop(child);
    assert_eq!(script(&slot, "kills", "echo next").read().unwrap(), "next");
}

const CASE: &str = "PIPEWRIGHT_SLOT_HOLDERS_CASE";

/// Runs this test again under strace, with that call failing for lack of room. Returns true in the process that does
/// it.
fn is_inside(call: &str, times: &str) -> bool {
    if std::env::var_os(CASE).is_some() {
        return true;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        skipped(Need::Program("strace"), "it makes calls fail");
        return false;
    }
    if has_no_slots() {
        return false;
    }
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
    command.arg(format!("inject={call}:error=ENOBUFS:{times}"));
    command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, "inside").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    false
}

#[isolated_test]
fn an_end_is_reported_again_if_there_is_no_room_for_the_message() {
    // The first message of a slot's supervisor says that it is ready.
    if !is_inside("sendto", "when=3..4") {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    for text in ["1", "2", "3"] {
        let mut command = script(&slot, "ends", &format!("echo {text}"));
        let output = command.timeout(pace::seconds(60)).output().unwrap();
        assert_eq!(
            (output.outcome, output.stdout.trim_ascii()),
            (Outcome::Exited, text.as_bytes())
        );
    }
}

#[isolated_test]
fn a_start_whose_result_cannot_be_sent_leaves_nothing_to_the_next_command() {
    // The delay lets the command start others. Each thread here sends one request.
    if !is_inside("sendmsg", "delay_enter=400000:when=2") {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    let run = |words: &'static str| {
        let slot = slot.clone();
        std::thread::spawn(move || script(&slot, "unsent", words).output()).join().unwrap()
    };
    // A request to end leftovers would be the second of its thread.
    assert_eq!(run("exit 0").unwrap().leftovers_killed, 0);
    let error = run("(setsid sleep 600 &); sleep 600").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
    assert_eq!(alive::marked(MARK, "unsent"), [0_u32; 0], "of the start that failed");
    assert_eq!(run("exit 0").unwrap().leftovers_killed, 0);
}

#[isolated_test]
fn a_slot_keeps_no_right_that_this_process_has_given_up() {
    if has_no_slots() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root has rights to give up");
    }
    let slot = TreeSlot::new().unwrap();
    let words = "grep -E '^(Groups|Cap|NoNewPrivs):?' /proc/self/status; stat -c %d.%i /";
    let rights = |in_slot: bool| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", words]).stdin(Stdio::null());
        if in_slot {
            command.contain_in(&slot);
        }
        command.read()
    };
    let same = |what: &str, before: &str| {
        let (plain, held) = (rights(false).unwrap(), rights(true).unwrap());
        assert_ne!(plain, before, "{what} has not been given up");
        assert_eq!(held, plain, "{what}");
        plain
    };
    let mut before = rights(true).unwrap();
    // SAFETY: a list of one.
    assert_eq!(unsafe { libc::setgroups(1, [12345].as_ptr()) }, 0);
    before = same("a group", &before);
    let header = [0x2008_0522_u32, 0];
    // Permitted and effective, without CAP_NET_RAW (13), for setting it and for inheriting it.
    let mut sets = [0_u32; 6];
    // SAFETY: a header, and room for that version.
    unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    // SAFETY: numbers. Programs of root get all that are in this set.
    assert_eq!(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, 13, 0, 0, 0) }, 0);
    (sets[0], sets[1]) = (sets[0] & !(1 << 13), sets[1] & !(1 << 13));
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0);
    before = same("a capability", &before);
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    same("new privileges", &before);
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chroot(dir.path()).unwrap();
    assert_eq!(rights(true).unwrap_err().kind(), rights(false).unwrap_err().kind());
}

#[watched_test]
fn unread_input_is_counted_whenever_the_command_ends() {
    if has_no_slots() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    for round in 0..pace::rounds(40, 10) {
        let mut command = Command::new("true");
        command.stdin(Stdio::bytes(vec![7; 70_000])).contain_in(&slot);
        let unread = match round % 2 {
            0 => command.output().unwrap().stdin_unread,
            _ => command.spawn().unwrap().read_all_bytes().unwrap().stdin_unread,
        };
        assert_eq!(unread, 70_000, "round {round}");
    }
}
