//! A fork of a process that has children: nothing of this crate acts in a process that did not make it.

use std::time::Duration;

use pipewright::{AsyncRunner, Command, Contain, Runner, Scope, Stdio, TreeSlot};
use pipewright_test_macros::isolated_test;
use pipewright_tests::watchdog::in_a_fork;
use pipewright_tests::{alive, pace, watchdog};

use super::tree_slot::has_no_slots;
use super::{cannot_supervise, puppet};

const MARK: &str = "PIPEWRIGHT_FORKS_TEST";

/// Returns a command that runs until it is killed, with a process that leaves its group.
fn lasting() -> Command {
    let mut command = puppet(["daemon=600", "out=x", "wait=600"]);
    command.env(MARK, alive::mark("lasting")).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(Stdio::null());
    command
}

#[isolated_test]
fn a_fork_that_drops_its_copies_ends_no_tree_of_its_parent() {
    let mut children = vec![
        ("kill on drop", lasting().kill_on_drop().spawn().unwrap()),
        ("group", lasting().contain(Contain::Group).kill_on_drop().spawn().unwrap()),
        ("tree", lasting().contain(Contain::Tree).spawn().unwrap()),
    ];
    if !cannot_supervise() {
        let mut command = lasting();
        command.kill_on_parent_exit(Scope::Tree);
        children.push(("ends with us", command.spawn().unwrap()));
    }
    let slot = (!has_no_slots()).then(|| TreeSlot::new().unwrap());
    if let Some(slot) = &slot {
        children.push(("slot", lasting().contain_in(slot).spawn().unwrap()));
    }
    let mut lines_of = lasting();
    let lines = lines_of.stdout(Stdio::piped()).contain(Contain::Tree).lines().unwrap();
    let mut events_of = lasting();
    let mut events = events_of.stdout(Stdio::piped()).contain(Contain::Tree).events().unwrap();
    events.next().unwrap().unwrap();
    let mut runner = Runner::new(2);
    runner.push("runner", lasting().contain(Contain::Tree).owned());
    assert!(matches!(runner.next_within(Duration::from_millis(1)), pipewright::Next::Pending));
    // Two that a task runs: what it does at the drop of its future is not for a fork.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut tasks = AsyncRunner::new(2);
    tasks.push("task", lasting().contain(Contain::Tree).owned());
    tasks.push("plain task", lasting());
    let polled = async { tokio::time::timeout(Duration::from_millis(1), tasks.next()).await };
    assert!(runtime.block_on(polled).is_err());
    let count = 2 * (children.len() + 5);
    watchdog::until("all have started", || alive::marked(MARK, "lasting").len() == count);
    let mut mine = Some((children, lines, events, runner, tasks, slot));
    assert!(in_a_fork(|| {
        let Some((children, mut lines, events, mut runner, tasks, slot)) = mine.take() else {
            return;
        };
        // A wait fails at once, and ends nothing either.
        for (_, child) in &children {
            let _ = child.try_wait();
            assert!(child.wait().is_err());
            assert!(child.try_wait_for(Duration::from_millis(1)).is_err());
            assert!(child.stop().is_err());
        }
        assert!(lines.next().is_none_or(|line| line.is_err()));
        assert!(runner.next().is_none_or(|(_, result)| result.is_err()));
        drop((children, lines, events, runner, tasks, slot));
    }));
    assert_eq!(alive::marked(MARK, "lasting").len(), count, "the fork has ended some");
    let (children, lines, events, runner, tasks, slot) = mine.take().unwrap();
    for (name, child) in &children {
        assert_eq!(child.try_wait().unwrap(), None, "{name}");
    }
    drop((lines, events, runner, tasks));
    for (name, child) in children {
        child.kill().unwrap();
        child.wait().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    drop(slot);
    // What left its group without a tree.
    alive::marked(MARK, "lasting").into_iter().for_each(alive::kill);
}

#[isolated_test]
fn a_fork_starts_commands_while_another_thread_was_starting_one() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    let start = |how: usize| {
        let mut command = puppet(["exit=0"]);
        match how % 3 {
            0 => {}
            1 => _ = command.contain(Contain::Tree),
            _ => _ = command.kill_on_parent_exit(Scope::Child),
        }
        assert!(command.status().unwrap().success());
    };
    std::thread::scope(|scope| {
        for first in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let mut how = first;
                while !done.load(Ordering::Relaxed) {
                    start(how);
                    how += 1;
                }
            });
        }
        for round in 0..pace::rounds(200, 30) {
            assert!(in_a_fork(|| (0..3).for_each(start)), "fork {round}");
        }
        done.store(true, Ordering::Relaxed);
    });
}
