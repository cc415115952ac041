//! The cgroups in which limited ones are made: cgroup v2, delegated to this process.

use std::fs;
use std::path::{Path, PathBuf};

use pipewright::{Command, ErrorKind, LimitMechanism, Limits, MemoryLimit, Outcome, ProcessHandle};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, skipped};

use super::puppet;
use super::tree_limits::{SMALL, memory};

const TOP: &str = "/sys/fs/cgroup";

/// A cgroup of the test's own, made where limited ones can be made.
///
/// # Drop
/// Moves this process to a leaf beside it, and removes it.
struct Group(PathBuf);

impl Group {
    /// Makes one; `None`, and a report, if that is not possible here.
    fn new(name: &str) -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let own = Path::new(TOP).join(own);
        // Makes the controllers usable in the cgroup around this one.
        let _ = puppet(["exit=0"]).limits(memory(SMALL).pids_max(50)).status();
        let has_memory = |dir: &&Path| {
            let text = fs::read_to_string(dir.join("cgroup.subtree_control"));
            text.is_ok_and(|text| text.contains("memory"))
        };
        let made = own.ancestors().find(has_memory).map(|dir| dir.join(name));
        match made.filter(|dir| fs::create_dir(dir).is_ok()) {
            Some(dir) => Some(Group(dir)),
            None => {
                skipped(
                    Need::CgroupV2,
                    "no cgroup v2 with the controller memory is delegated to this process",
                );
                None
            }
        }
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    /// Moves this process into it, or into one in it.
    fn enter(&self, below: &str) {
        let dir = self.0.join(below);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let beside = self.0.with_extension("after");
        let _ = fs::create_dir(&beside);
        let _ = fs::write(beside.join("cgroup.procs"), std::process::id().to_string());
        for below in ["pipewright-hosts", "leaf", ""] {
            let _ = fs::remove_dir(self.0.join(below));
        }
    }
}

fn out_of_memory(limits: Limits) -> MemoryLimit {
    let capture = puppet(["allocate=200"]).limits(limits).capture().unwrap();
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    oom.limit
}

#[isolated_test]
fn the_limit_of_a_group_around_is_told_from_the_command_s_own() {
    const AROUND: u64 = 48 << 20;
    let Some(group) = Group::new("limited") else { return };
    group.set("memory.max", &AROUND.to_string());
    group.set("memory.swap.max", "0");
    group.enter("leaf");
    assert_eq!(out_of_memory(memory(512 << 20)), MemoryLimit::OfAncestor(Some(AROUND)));
    assert_eq!(out_of_memory(memory(SMALL)), MemoryLimit::OfCommand(SMALL));
    // A tree that is only measured is told too.
    assert_eq!(out_of_memory(Limits::new()), MemoryLimit::OfAncestor(Some(AROUND)));
}

#[isolated_test]
fn a_process_alone_in_its_cgroup_moves_to_a_leaf() {
    let Some(group) = Group::new("alone") else { return };
    // A limit, so that cgroups beside it must not be used.
    group.set("pids.max", "500");
    group.enter("");
    assert_eq!(out_of_memory(memory(SMALL)), MemoryLimit::OfCommand(SMALL));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert!(own.trim_end().ends_with("/alone/pipewright-hosts"), "{own}");
}

#[isolated_test]
fn a_cgroup_with_other_processes_is_an_error_that_says_so() {
    let Some(group) = Group::new("shared") else { return };
    group.set("pids.max", "500");
    group.enter("");
    // Not a descendant of this process: its parent has ended.
    let script = "setsid sleep 600 > /dev/null 2>&1 & echo $!";
    let pid = Command::new("sh").args(["-c", script]).read().unwrap();
    let other = ProcessHandle::open(pid.parse().unwrap()).unwrap();
    let tried = puppet(["exit=0"]).limits(memory(SMALL)).status();
    other.kill().unwrap();
    other.wait().unwrap();
    let error = tried.unwrap_err();
    let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
    assert!(limit.reason.contains("1 other processes"), "{error}");
    assert!(limit.remedy.is_some(), "{error}");
}

#[isolated_test]
fn limits_are_held_by_the_cgroup_that_contains_the_tree() {
    let Some(_group) = Group::new("plain") else { return };
    let capture =
        puppet(["exit=0"]).limits(memory(SMALL).cpu_max(0.5).pids_max(9)).capture().unwrap();
    assert_eq!(capture.limits.unwrap().mechanism, Some(LimitMechanism::CgroupV2));
    assert_eq!(capture.containment, pipewright::Containment::Cgroup);
    // The cgroup of this process still takes trees without limits.
    let capture = puppet(["exit=0"]).contain(pipewright::Contain::Tree).capture().unwrap();
    assert_eq!(capture.containment, pipewright::Containment::Cgroup);
    let capture = puppet(["exit=0"]).limits(memory(SMALL)).capture().unwrap();
    let usage = capture.tree_usage.unwrap();
    assert!(usage.user.is_some() && usage.system.is_some(), "{usage:?}");
}
