//! Kills for lack of memory, told from other kills. `PIPEWRIGHT_TEST_KILLS=1000` makes 1,000 of each.

use std::path::Path;

use pipewright::{Command, Limits, MemoryLimit, Outcome, Signal, Stdio};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, counted, skipped};
use pipewright_tests::{pace, watchdog};

use super::puppet;
use super::tree_limits::{SMALL, cannot_limit, memory};

/// Returns the number of kills of each sort.
fn rounds() -> usize {
    let asked = std::env::var("PIPEWRIGHT_TEST_KILLS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// Starts a tree that something else kills: the command, a descendant, or both.
fn kill_otherwise(round: usize) -> Outcome {
    let mut command = Command::new("sh");
    let script = match round % 3 {
        0 => "kill -KILL $$",
        1 => "sleep 600 & kill -KILL $!; wait",
        _ => "sleep 600 & kill -KILL $! $$",
    };
    command.args(["-c", script]).limits(memory(SMALL)).stderr(Stdio::null());
    command.capture().unwrap().outcome
}

#[watched_test(limit = pace::seconds(600))]
fn every_kill_is_attributed() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    let (mut named, rounds) = (0, rounds());
    for round in 0..rounds {
        let mut command = match round % 2 {
            0 => puppet(["allocate=100"]),
            _ => puppet(["spawn-and-reap=allocate=100", "exit=0"]),
        };
        let capture = command.limits(memory(SMALL)).stderr(Stdio::null()).capture().unwrap();
        let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{round}: {capture:?}") };
        assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL), "{round}: {capture:?}");
        named += usize::from(oom.victim.is_some_and(|victim| victim.name() == "puppet"));
        let other = kill_otherwise(round);
        assert!(matches!(other, Outcome::Signaled | Outcome::Exited), "{round}: {other:?}");
    }
    counted(&format!("{rounds} kills for lack of memory, {named} with a victim; {rounds} others"));
}

/// For a machine that a test may fill: `ci/kernels.sh` says so of its own.
#[watched_test]
fn a_lack_of_memory_of_the_machine_is_told_from_a_limit() {
    if std::env::var_os("PIPEWRIGHT_TEST_FILL_MEMORY").is_none() {
        return skipped(
            Need::SpareMemory,
            "the memory of this machine is not for tests: PIPEWRIGHT_TEST_FILL_MEMORY",
        );
    }
    if cannot_limit(memory(SMALL)) {
        return;
    }
    // More than the machine has. The kernel chooses a process that asks for it before all others.
    let script = "echo 1000 > /proc/self/oom_score_adj; exec \"$PUPPET\" allocate=1000000";
    for limits in [Limits::new().pids_max(50), Limits::new().memory_max(1 << 40)] {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("PUPPET", env!("CARGO_BIN_EXE_puppet"));
        let capture = command.limits(limits).stderr(Stdio::null()).capture().unwrap();
        let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
        assert_eq!((oom.limit, oom.killed), (MemoryLimit::Machine, 1), "{capture:?}");
        let outcome = command.limits(memory(SMALL)).capture().unwrap().outcome;
        let Outcome::OutOfMemory(oom) = outcome else { panic!("{outcome:?}") };
        assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL));
    }
}

#[watched_test]
fn a_kill_from_outside_is_not_out_of_memory() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    // Full of cached data or not, and close to its limit or not.
    for acts in [vec!["wait=600"], vec!["allocate=14", "wait=600"]] {
        let mut lines = puppet(&acts).limits(memory(SMALL)).lines().unwrap();
        let pid = lines.pid();
        watchdog::until("it runs", || Path::new(&format!("/proc/{pid}")).exists());
        pipewright::ProcessHandle::open(pid).unwrap().signal(Signal::KILL).unwrap();
        while lines.next().is_some() {}
        let end = lines.finish().unwrap();
        assert_eq!(end.outcome, Outcome::Signaled, "{end:?}");
    }
}
