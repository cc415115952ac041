//! The cgroups in which limited ones are made: those delegated to this process, and those that systemd makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pipewright::machine::{State, facilities};
use pipewright::{
    Command, Containment, ErrorKind, LimitMechanism, Limits, MemoryLimit, Outcome, ProcessHandle,
    Stdio,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, counted, skipped};
use pipewright_tests::watchdog::{current_test, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::puppet;
use crate::tree_limits::{SMALL, memory};

/// The user's manager.
struct Manager(Pid);

/// Returns the manager; `None`, and a report, if there is none for tests.
fn manager() -> Option<Manager> {
    let Ok(pid) = std::env::var("PIPEWRIGHT_TEST_USER_MANAGER") else {
        skipped(
            Need::SystemdUser,
            "no user manager of systemd is for tests: a cell of ci/kernels.sh has one",
        );
        return None;
    };
    Some(Manager(Pid::from_raw(pid.parse().unwrap()).unwrap()))
}

impl Manager {
    /// Stops it until the value is dropped.
    fn stop(&self) -> Stopped<'_> {
        kill_process(self.0, Signal::STOP).unwrap();
        Stopped(self)
    }
}

struct Stopped<'a>(&'a Manager);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = kill_process(self.0.0, Signal::CONT);
    }
}

fn cgroup_of(pid: impl std::fmt::Display) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    own.to_owned()
}

/// Returns the scopes that were made for a process.
fn scopes_of(pid: u32) -> Vec<PathBuf> {
    let terminal = Path::new("/sys/fs/cgroup").join(cgroup_of("self").trim_start_matches('/'));
    let slice = terminal.ancestors().find(|path| path.ends_with("app.slice")).unwrap();
    let entries = fs::read_dir(slice).unwrap().map(|entry| entry.unwrap().path());
    let prefix = format!("pipewright-{pid}-");
    let is_of = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".scope")
    };
    entries.filter(is_of).collect()
}

/// Returns the states of the limits, as the doctor prints them.
fn limit_states() -> Vec<State> {
    let all = facilities().into_iter().filter(|facility| facility.name.ends_with(" limit"));
    all.map(|facility| facility.state).collect()
}

#[isolated_test]
fn a_process_of_a_terminal_s_scope_gets_one_of_its_own() {
    let Some(_manager) = manager() else { return };
    let terminal = cgroup_of("self");
    assert!(terminal.ends_with("/app.slice/terminal.scope"), "{terminal}");
    let start = Instant::now();
    let capture = puppet(["allocate=200"]).limits(memory(SMALL)).capture().unwrap();
    counted(&format!("the first start took {:?}", start.elapsed()));
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL));
    assert_eq!(capture.containment, Containment::Cgroup);
    // In the same slice, and with the same number of processes.
    let own = cgroup_of("self");
    let begin = format!("/app.slice/pipewright-{}-", std::process::id());
    assert!(own.contains(&begin) && own.ends_with(".scope/pipewright-hosts"), "{own}");
    let scopes = scopes_of(std::process::id());
    let most = |scope: &Path| fs::read_to_string(scope.join("pids.max")).unwrap();
    assert_eq!(most(&scopes[0]), most(&scopes[0].with_file_name("terminal.scope")));
    // Other controllers, in the same scope.
    let limits = memory(SMALL).cpu_max(0.5).pids_max(9);
    let capture = puppet(["exit=0"]).limits(limits).capture().unwrap();
    let held = capture.limits.unwrap();
    assert_eq!((held.limits, held.mechanism), (limits, Some(LimitMechanism::CgroupV2)));
    assert_eq!((scopes_of(std::process::id()), cgroup_of("self")), (scopes, own));
}

#[isolated_test]
fn nothing_is_left_of_the_scope_of_a_process_that_has_ended() {
    let Some(_manager) = manager() else { return };
    let host = puppet(["host-limited=wait=600"]).stderr(Stdio::null()).spawn().unwrap();
    until("the host has a scope", || !scopes_of(host.id()).is_empty());
    host.kill().unwrap();
    host.wait().unwrap();
    until("the scope of the killed host is gone", || scopes_of(host.id()).is_empty());
    let host = puppet(["host-limited=exit=0"]).stderr(Stdio::null()).spawn().unwrap();
    host.wait().unwrap();
    until("the scope is gone", || scopes_of(host.id()).is_empty());
}

#[isolated_test]
fn the_doctor_says_so_and_moves_nothing() {
    let Some(_manager) = manager() else { return };
    let before = cgroup_of("self");
    for state in limit_states() {
        let State::Available(how) = state else { panic!("{state:?}") };
        assert_eq!(how, "cgroup v2; systemd makes a scope for this process first");
    }
    assert_eq!((cgroup_of("self"), scopes_of(std::process::id()).len()), (before.clone(), 0));
    // It was true.
    puppet(["exit=0"]).limits(memory(SMALL)).run().unwrap();
    assert_ne!(cgroup_of("self"), before);
}

#[isolated_test]
fn a_manager_that_does_not_answer_is_an_error_that_says_so() {
    let Some(manager) = manager() else { return };
    let before = cgroup_of("self");
    let stopped = manager.stop();
    for _ in 0..2 {
        let start = Instant::now();
        let error = puppet(["exit=0"]).limits(memory(SMALL)).status().unwrap_err();
        counted(&format!("the start failed after {:?}", start.elapsed()));
        let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
        let reason = "systemd makes no scope for this process: it does not answer";
        assert!(limit.reason.ends_with(reason), "{error}");
        let remedy = limit.remedy.as_deref();
        assert_eq!(remedy, Some("systemd-run --user --scope -p Delegate=yes -- COMMAND"));
    }
    drop(stopped);
    // It has done all that it was asked for before, and has not moved this process.
    Command::new("systemctl").args(["--user", "daemon-reload"]).run().unwrap();
    assert_eq!(cgroup_of("self"), before);
}

#[isolated_test]
fn the_doctor_does_not_count_on_a_manager_that_does_not_answer() {
    let Some(manager) = manager() else { return };
    let _stopped = manager.stop();
    for state in limit_states() {
        let State::Missing(why) = state else { panic!("{state:?}") };
        assert!(
            why.contains("systemd makes no scope for this process: it does not answer"),
            "{why}"
        );
    }
}

#[isolated_test]
fn the_bus_leads_to_the_manager_too() {
    let Some(_manager) = manager() else { return };
    // The first call starts it, which takes long.
    Command::new("busctl").args(["--user", "list"]).stdout(Stdio::null()).run().unwrap();
    let dir = std::env::temp_dir().join(format!("only-a-bus-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    let bus = Path::new(&std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("bus");
    std::os::unix::fs::symlink(bus, dir.join("bus")).unwrap();
    let mut host = puppet(["host-limited=wait=600"]);
    let host = host.env("XDG_RUNTIME_DIR", &dir).stderr(Stdio::null()).spawn().unwrap();
    until("the host has a scope", || !scopes_of(host.id()).is_empty());
    host.kill().unwrap();
    host.wait().unwrap();
    fs::remove_dir_all(dir).unwrap();
}

#[isolated_test]
fn a_service_stays_where_it_is_and_is_told_what_would_help() {
    const MARK: &str = "PIPEWRIGHT_TEST_IN_SERVICE";
    let Some(_manager) = manager() else { return };
    if std::env::var_os(MARK).is_some() {
        let before = cgroup_of("self");
        assert!(before.ends_with("/limited.service"), "{before}");
        let error = puppet(["exit=0"]).limits(memory(SMALL)).status().unwrap_err();
        let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
        let remedy = "systemctl --user edit limited.service, with Delegate=yes in [Service]";
        assert_eq!(limit.remedy.as_deref(), Some(remedy));
        assert_eq!(cgroup_of("self"), before);
        return;
    }
    // With another process, which this one has not started.
    let with_another = r#"(sleep 600 &); exec "$@""#;
    let program = std::env::current_exe().unwrap();
    let mut service = Command::new("systemd-run");
    service.args(["--user", "--wait", "--pipe", "--collect", "--unit=limited.service"]);
    service.arg(format!("--setenv={MARK}=1")).arg("--same-dir");
    for name in ["PIPEWRIGHT_ISOLATED", "PIPEWRIGHT_TEST_USER_MANAGER", "PIPEWRIGHT_TEST_SCALE"] {
        service.arg(format!("--setenv={name}"));
    }
    service.args(["sh", "-c", with_another, "sh"]).arg(program);
    service.args([&current_test(), "--exact", "--nocapture", "--test-threads=1"]);
    let output = service.read().unwrap();
    assert!(output.contains("1 passed"), "{output}");
}

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
