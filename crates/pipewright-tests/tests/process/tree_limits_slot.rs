//! Limits of the commands of a slot, whose groups are used again.

use pipewright::{
    Capture, Command, ErrorKind, LimitMechanism, Limits, MemoryLimit, Outcome, Stdio, TreeSlot,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::skipped;
use pipewright_tests::{cgroups, count, watchdog};

use super::tree_limits::{SMALL, cannot_limit, memory};
use super::tree_slot::has_no_slots;
use super::{cannot_supervise, puppet};

const LARGE: u64 = 256 << 20;

/// Returns a slot, or `None` and the report of it if it cannot have commands with these limits here.
fn slot_for(limits: Limits) -> Option<TreeSlot> {
    if has_no_slots() || cannot_supervise() || cannot_limit(limits) {
        return None;
    }
    Some(TreeSlot::new().unwrap())
}

fn run_in(slot: &TreeSlot, limits: Limits, acts: &[&str]) -> Capture {
    puppet(acts).contain_in(slot).limits(limits).stderr(Stdio::null()).capture().unwrap()
}

/// Returns the cgroups that a command of the slot is in.
fn groups_in(slot: &TreeSlot, limits: Option<Limits>) -> String {
    let mut command = Command::new("cat");
    command.arg("/proc/self/cgroup").contain_in(slot);
    if let Some(limits) = limits {
        command.limits(limits);
    }
    command.capture().unwrap().stdout
}

#[watched_test]
fn a_slot_holds_the_limits_of_each_command() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    for round in 0..3 {
        let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
        let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{round}: {capture:?}") };
        assert_eq!((oom.limit, oom.killed), (MemoryLimit::OfCommand(SMALL), 1));
        // The last kill is not one of the next command.
        let capture = run_in(&slot, memory(SMALL), &["exit=3"]);
        assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
        assert_eq!(capture.out_of_memory, None);
        let held = capture.limits.unwrap();
        assert_eq!((held.limits, held.missing.len()), (memory(SMALL), 0));
    }
}

#[watched_test]
fn the_groups_of_a_slot_are_used_again() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let first = groups_in(&slot, Some(memory(SMALL)));
    assert_ne!(first, own);
    for _ in 0..3 {
        assert_eq!(groups_in(&slot, Some(memory(SMALL))), first);
    }
    assert_eq!(groups_in(&slot, None), own, "a command without limits");
    assert_eq!(groups_in(&slot, Some(memory(SMALL))), first);
}

#[watched_test]
fn the_figures_of_a_command_are_its_own() {
    let limits = memory(LARGE).pids_max(50);
    let Some(slot) = slot_for(limits) else { return };
    let large = run_in(&slot, limits, &["allocate=64", "burn=60", "spawn=wait=0"]);
    let large = large.tree_usage.unwrap();
    let small = run_in(&slot, limits, &["exit=0"]);
    assert_eq!((small.outcome, small.out_of_memory), (Outcome::Exited, None));
    let small = small.tree_usage.unwrap();
    if let (Some(large), Some(small)) = (large.peak_memory_bytes, small.peak_memory_bytes) {
        assert!(large >= 64 << 20 && small < 32 << 20, "{large} and {small}");
    }
    if let (Some(large), Some(small)) = (large.peak_pids, small.peak_pids) {
        assert!(large >= 2 && small == 1, "{large} and {small}");
    }
    if let (Some(large), Some(small)) = (large.user, small.user) {
        assert!(large > small, "{large:?} and {small:?}");
    }
}

#[watched_test]
fn the_next_command_may_have_other_limits() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    for _ in 0..2 {
        assert_eq!(run_in(&slot, memory(LARGE), &["allocate=100"]).outcome, Outcome::Exited);
        let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
        assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
        let measured = run_in(&slot, Limits::new(), &["allocate=100"]);
        assert_eq!(measured.outcome, Outcome::Exited);
    }
}

/// Root may write to the files of its group.
#[watched_test]
fn a_limit_that_a_command_has_changed_holds_for_the_next_one() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    let is_v2 = run_in(&slot, memory(SMALL), &["exit=0"]).limits.unwrap().mechanism
        == Some(LimitMechanism::CgroupV2);
    let script = if is_v2 {
        "group=$(sed -n 's/^0:://p' /proc/self/cgroup); \
         top=$(sed -n 's/.* - cgroup2 .*/&/p' /proc/self/mountinfo | cut -d' ' -f5 | head -n 1); \
         echo max > $top$group/memory.max && echo changed"
    } else {
        "group=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup); \
         top=$(grep -- '- cgroup .*memory' /proc/self/mountinfo | cut -d' ' -f5 | head -n 1); \
         echo -1 > $top$group/memory.memsw.limit_in_bytes; \
         echo -1 > $top$group/memory.limit_in_bytes && echo changed"
    };
    let mut command = Command::new("sh");
    command.args(["-c", script]).contain_in(&slot).limits(memory(SMALL)).stderr(Stdio::null());
    if command.capture().unwrap().stdout != "changed\n" {
        return skipped("a command cannot change its limit here");
    }
    let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
    assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
}

#[isolated_test]
fn the_groups_of_a_slot_are_removed_with_it() {
    let limits = memory(SMALL).pids_max(50);
    if slot_for(limits).is_none() {
        return;
    }
    let run = |round: usize| {
        let slot = TreeSlot::new().unwrap();
        let acts: &[&str] = match round % 4 {
            0 => &["out=x"],
            1 => &["daemon=600", "exit=1"],
            2 => &["allocate=100"],
            _ => &["spawn=wait=0"],
        };
        for _ in 0..2 {
            run_in(&slot, limits, acts);
        }
        let error = Command::new("no-such-program").contain_in(&slot).limits(limits).status();
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::NotFound { .. }));
    };
    // The first rounds start threads and open files that stay.
    (0..4).for_each(run);
    watchdog::until("the first are reaped", || count::children().is_empty());
    let before = count::handles();
    (0..16).for_each(run);
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before);
    let left = cgroups::made_by(std::process::id());
    assert!(left.is_empty(), "{left:?}");
}
