//! Limits of the commands of a slot, whose groups are used again.

use std::path::PathBuf;
use std::time::Duration;

use pipewright::{Capture, Command, ErrorKind, Limits, MemoryLimit, Outcome, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::{alive, count, watchdog};

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

/// Returns a command that sets the shell's variables `v1` and `v2` to its groups, and then runs the script. Root may write to
/// their files.
fn script_in(slot: &TreeSlot, limits: Limits, script: &str) -> Command {
    const GROUPS: &str = "mount() { grep -- \"$1\" /proc/self/mountinfo | cut -d' ' -f5 | head -n 1; }; \
        v2=$(mount '- cgroup2 ')$(sed -n 's/^0:://p' /proc/self/cgroup); \
        v1=$(mount '- cgroup .*memory')$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup); ";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{GROUPS}{script}")]).contain_in(slot).limits(limits);
    command.stderr(Stdio::null());
    command
}

#[watched_test]
fn a_limit_that_a_command_has_changed_holds_for_the_next_one() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    // The last one lets a process wait that would be killed.
    let script = "{ echo max > $v2/memory.max && echo changed; } || \
        { echo -1 > $v1/memory.memsw.limit_in_bytes; echo -1 > $v1/memory.limit_in_bytes && \
        echo 1 > $v1/memory.oom_control && echo changed; }";
    if script_in(&slot, memory(SMALL), script).capture().unwrap().stdout != "changed\n" {
        return skipped(Need::Root, "a command cannot change its limit here");
    }
    let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
    assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
}

#[watched_test]
fn a_command_that_freezes_its_cgroup_stops_no_other_one() {
    for limits in [memory(SMALL), Limits::new()] {
        let Some(slot) = slot_for(limits) else { return };
        let mut freezes = script_in(&slot, limits, "echo 1 > $v2/cgroup.freeze || exit 7");
        let capture = freezes.timeout(Duration::from_secs(2)).capture().unwrap();
        if capture.status.code() == Some(7) {
            return skipped(Need::CgroupV2, "a command cannot freeze its cgroup here");
        }
        assert_eq!(capture.outcome, Outcome::TimedOut, "{capture:?}");
        assert_eq!(run_in(&slot, limits, &["exit=3"]).status.code(), Some(3));
    }
}

/// As a service manager does, or another process that takes an empty group for one that was left behind.
#[watched_test]
fn groups_that_something_else_has_removed_are_made_again() {
    for limits in [memory(SMALL), Limits::new()] {
        let Some(slot) = slot_for(limits) else { return };
        let groups = groups_in(&slot, Some(limits));
        let is_own = |group: &PathBuf| {
            group.file_name().is_some_and(|name| groups.contains(&*name.to_string_lossy()))
        };
        for group in alive::cgroups_made_by(std::process::id()).into_iter().filter(is_own) {
            std::fs::remove_dir(group).unwrap();
        }
        assert_eq!(run_in(&slot, limits, &["exit=3"]).status.code(), Some(3));
    }
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
    let left = alive::cgroups_made_by(std::process::id());
    assert!(left.is_empty(), "{left:?}");
}
