//! A runner of commands in slots, whose starts it does not wait for.

use std::time::Duration;

use pipewright::{Command, ErrorKind, Next, Outcome, Runner, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace};

use super::puppet;
use super::tree_slot::has_no_slots;

const MARK: &str = "PIPEWRIGHT_TREE_SLOT_RUNNER_TEST";

/// Returns that many slots, or none, and the report of it, if there are none here.
fn slots(count: usize) -> Vec<TreeSlot> {
    let count = if has_no_slots() { 0 } else { count };
    (0..count).map(|_| TreeSlot::new().unwrap()).collect()
}

/// Returns a command in the slot, whose processes have that mark.
fn held(slot: &TreeSlot, mark: &str, acts: &[&str]) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).contain_in(slot).stderr(Stdio::null());
    command
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_slot_that_does_not_answer_delays_no_other() {
    use pipewright_tests::watchdog;

    let slots = slots(2);
    let [first, second] = &slots[..] else { return };
    let child = held(first, "answer", &["wait=600"]).spawn().unwrap();
    let supervisor = alive::parent(child.id()).unwrap();
    let guard = alive::parent(supervisor).unwrap();
    drop(child);
    let signal = |name: &str, pid: u32| {
        let mut kill = Command::new("kill");
        assert!(kill.args([name, &pid.to_string()]).status().unwrap().success());
    };
    // The guard would continue it.
    for pid in [guard, supervisor] {
        signal("-STOP", pid);
        watchdog::until("it is stopped", || alive::state(pid) == Some('T'));
    }
    let mut runner = Runner::new(2);
    runner.push("first", held(first, "answer", &["out=1"]));
    for round in ["a", "b", "c"] {
        runner.push(round, held(second, "answer", &["out=2"]));
        let (key, capture) = runner.next().unwrap();
        assert_eq!((key, capture.unwrap().stdout.as_str()), (round, "2"));
        assert_eq!((runner.len(), runner.running()), (1, 1));
    }
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    signal("-CONT", supervisor);
    signal("-CONT", guard);
    let (key, capture) = runner.next().unwrap();
    assert_eq!((key, capture.unwrap().stdout.as_str()), ("first", "1"));
    assert!(runner.next().is_none());
}

#[isolated_test]
fn a_failed_start_in_a_slot_is_the_result_of_its_command() {
    let slots = slots(3);
    if slots.is_empty() {
        return;
    }
    let mut runner = Runner::new(slots.len());
    let mut run = || {
        for (number, slot) in slots.iter().enumerate() {
            match number {
                1 => {
                    let mut missing = Command::new("/no/such/program");
                    runner.push(number, missing.contain_in(slot).owned());
                }
                _ => runner.push(number, held(slot, "failed", &["daemon=600", "out=x"])),
            }
        }
        let mut ends: Vec<_> = runner.by_ref().collect();
        ends.sort_by_key(|(number, _)| *number);
        for (number, end) in ends {
            match end {
                Ok(capture) => {
                    assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("x", 1))
                }
                Err(error) => {
                    assert_eq!(number, 1);
                    assert!(
                        error.is_start() && matches!(error.kind(), ErrorKind::NotFound { .. }),
                        "{error}"
                    );
                    assert!(error.to_string().contains("/no/such/program"), "{error}");
                }
            }
        }
    };
    run();
    let (handles, children) = (count::handles_at_rest(), count::children());
    (0..pace::rounds(100, 20)).for_each(|_| run());
    assert_eq!(count::handles_at_rest(), handles);
    assert_eq!(count::children(), children, "only what holds the trees");
}

#[watched_test]
fn a_command_can_be_cancelled_while_it_starts() {
    let slots = slots(1);
    let [slot] = &slots[..] else { return };
    for _ in 0..pace::rounds(50, 10) {
        let mut runner = Runner::new(1);
        let mut command = held(slot, "cancelled", &["daemon=600", "wait=600"]);
        runner.push((), command.kill_grace(Duration::ZERO).owned());
        assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
        assert!(runner.cancel(&()));
        let ((), capture) = runner.next().unwrap();
        assert_eq!(capture.unwrap().outcome, Outcome::Cancelled);
        assert_eq!(alive::marked(MARK, "cancelled"), [0_u32; 0]);
    }
}

#[watched_test]
fn dropping_a_runner_ends_what_is_starting() {
    let slots = slots(2);
    if slots.is_empty() {
        return;
    }
    for _ in 0..pace::rounds(50, 10) {
        let mut runner = Runner::new(2);
        for slot in &slots {
            runner.push((), held(slot, "dropped", &["daemon=600", "wait=600"]));
        }
        assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
        drop(runner);
        // The next start waits for the end of the last tree.
        for slot in &slots {
            assert_eq!(held(slot, "next", &["out=x"]).read().unwrap(), "x");
        }
        assert_eq!(alive::marked(MARK, "dropped"), [0_u32; 0]);
    }
}

#[watched_test]
fn a_slot_is_in_use_while_it_starts_a_command() {
    let slots = slots(1);
    let [slot] = &slots[..] else { return };
    let mut runner = Runner::new(1);
    runner.push((), held(slot, "in use", &["wait=600"]));
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    let refused = held(slot, "in use", &["out=x"]).capture().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::SlotInUse), "{refused}");
    drop(runner);
    assert_eq!(held(slot, "in use", &["out=x"]).read().unwrap(), "x");
}
