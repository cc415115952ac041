//! Children and trees that end with their parent, whichever of our processes is killed.

#[cfg(target_os = "linux")]
use std::sync::mpsc;
#[cfg(target_os = "linux")]
use std::thread;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use pipewright::TreeSlot;
use pipewright::{Child, Command, Scope, Signal, Stdio};
#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(target_os = "linux")]
use pipewright_tests::kernel::hold;
#[cfg(unix)]
use pipewright_tests::skip::{Need, is_root, skipped};
use pipewright_tests::{alive, watchdog};

use super::{cannot_supervise, no_process_is_left, puppet};

const MARK: &str = "PIPEWRIGHT_PARENT_EXIT_TEST";

/// Starts a process that holds a tree of four: the command, a daemon, a daemon's daemon, and one that ignores
/// TERM.
fn host(mark: &str, change: impl FnOnce(&mut Command)) -> Option<(Child, Vec<u32>)> {
    if cannot_supervise() {
        return None;
    }
    let acts = "host=daemon=600;spawn=daemon=600;spawn=wait=600;wait=600";
    let mut command = puppet([acts]);
    command.env(MARK, alive::mark(mark)).stdin(Stdio::null()).stderr(Stdio::null());
    change(&mut command);
    let child = command.spawn().unwrap();
    watchdog::until("the tree is complete", || alive::marked(MARK, mark).len() >= 5);
    // A job needs no supervisor.
    #[cfg(windows)]
    let supervisors = Vec::new();
    #[cfg(unix)]
    let supervisors = both_supervisors(&child);
    Some((child, supervisors))
}

/// Waits for the guard, which executes its program after the command has started.
#[cfg(unix)]
fn both_supervisors(child: &Child) -> Vec<u32> {
    let mut supervisors = Vec::new();
    watchdog::until("there are a supervisor and its guard", || {
        supervisors = alive::supervisors(child.id());
        supervisors.len() == 2
    });
    supervisors
}

#[track_caller]
fn no_supervisor_is_left(supervisors: &[u32]) {
    for pid in supervisors {
        watchdog::until("its supervisors end too", || !alive::is_running(*pid));
    }
}

#[watched_test]
fn a_tree_ends_when_its_host_is_killed() {
    let Some((host, supervisors)) = host("host", |_| ()) else { return };
    host.signal(Signal::KILL).unwrap();
    no_process_is_left(MARK, "host");
    no_supervisor_is_left(&supervisors);
    host.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_host_that_never_looks_at_an_ended_tree_leaves_no_control_group() {
    if cannot_supervise() {
        return;
    }
    let host = host_asleep("host-asleep=exit=0", "asleep");
    watchdog::until("its group is removed", || alive::cgroups_made_by(host.id()).is_empty());
    host.signal(Signal::KILL).unwrap();
    host.wait().unwrap();
}

/// The groups have figures, which the host could still read.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_killed_host_leaves_no_control_group_of_an_ended_tree_with_limits() {
    if cannot_supervise() {
        return;
    }
    let host = host_asleep("host-asleep-limited=exit=0", "asleep-limited");
    let running = || alive::marked(MARK, "asleep-limited");
    watchdog::until("the command has ended", || running() == [host.id()]);
    let groups = alive::cgroups_made_by(host.id());
    host.signal(Signal::KILL).unwrap();
    watchdog::until("no group is left", || alive::cgroups_made_by(host.id()).is_empty());
    host.wait().unwrap();
    if groups.is_empty() {
        skipped(Need::Cgroup, "this machine has no cgroup");
    }
}

/// Returns true if a process of a test executes this act. Its mark alone would not tell: before its exec, each process
/// that a host creates, also a guard and a supervisor, has the memory of the host, with the mark in it.
#[cfg(target_os = "linux")]
fn is_executed(mark: &str, act: &str) -> bool {
    alive::marked(MARK, mark).into_iter().any(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == act.as_bytes())
    })
}

/// Starts a host that starts a command and never looks at it again.
#[cfg(target_os = "linux")]
fn host_asleep(act: &str, mark: &str) -> pipewright::Child {
    let mut command = puppet([act]);
    // Also if a test fails: it would sleep forever.
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop();
    command.env(MARK, alive::mark(mark));
    let mut host = command.spawn().unwrap();
    let (stderr, mut line) = (host.stderr.take().unwrap(), String::new());
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
    assert_eq!(line, "started\n");
    host
}

/// The groups of its limits too, and those that a host in the tree has made in them.
#[cfg(target_os = "linux")]
#[watched_test]
fn no_control_group_of_a_killed_host_is_left() {
    if cannot_supervise() {
        return;
    }
    let mut seen = 0;
    let hosts = [
        "host=wait=600",
        "host-limited=wait=600",
        "host-limited=host=wait=600",
        "host-slot=wait=600",
        "host-slot=host-slot=wait=600",
    ];
    for (index, acts) in hosts.into_iter().enumerate() {
        let mark = format!("groups{index}");
        let mut command = puppet([acts]);
        command.env(MARK, alive::mark(&mark)).stdin(Stdio::null()).stderr(Stdio::null());
        let host = command.spawn().unwrap();
        watchdog::until("the tree is complete", || is_executed(&mark, "wait=600"));
        both_supervisors(&host);
        let groups = alive::cgroups_made_by(host.id());
        seen += groups.len();
        host.signal(Signal::KILL).unwrap();
        watchdog::until("no group is left", || alive::cgroups_made_by(host.id()).is_empty());
        no_process_is_left(MARK, &mark);
        assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
        host.wait().unwrap();
    }
    if seen == 0 {
        skipped(Need::Cgroup, "this machine has no cgroup");
    }
}

/// As a killed process that does not get a processor stays in its group for a while.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_group_of_a_killed_host_that_is_empty_only_later_is_removed_then() {
    if cannot_supervise() {
        return;
    }
    let mut command = puppet(["host-limited=wait=600"]);
    command.env(MARK, alive::mark("late")).stdin(Stdio::null()).stderr(Stdio::null());
    let host = command.spawn().unwrap();
    watchdog::until("the tree is complete", || is_executed("late", "wait=600"));
    both_supervisors(&host);
    let groups = alive::cgroups_made_by(host.id());
    let other = puppet(["wait=600"]).kill_on_drop().spawn().unwrap();
    // A group with such a file kills the other process too.
    let keeps = |group: &&std::path::PathBuf| !group.join("cgroup.kill").exists();
    let joins = |group: &std::path::PathBuf| {
        std::fs::write(group.join("cgroup.procs"), other.id().to_string()).is_ok()
    };
    if groups.iter().filter(keeps).filter(|group| joins(group)).count() == 0 {
        skipped(Need::CgroupV1, "no control group of version 1 can be joined");
    }
    host.signal(Signal::KILL).unwrap();
    no_process_is_left(MARK, "late");
    let killed = Instant::now();
    watchdog::until("it takes a while", || killed.elapsed() > Duration::from_millis(400));
    drop(other);
    watchdog::until("no group is left", || alive::cgroups_made_by(host.id()).is_empty());
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_tree_ends_when_the_whole_group_of_its_host_is_killed() {
    let Some((host, supervisors)) = host("group", |command| _ = command.own_group()) else {
        return;
    };
    let group = rustix::process::Pid::from_raw(host.id() as i32).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    no_process_is_left(MARK, "group");
    no_supervisor_is_left(&supervisors);
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_tree_ends_when_its_supervisor_or_its_guard_is_killed() {
    for index in [0, 1] {
        let Some((host, supervisors)) = host("supervisor", |_| ()) else { return };
        alive::kill(supervisors[index]);
        // The host waits for the command, and so ends with it.
        assert!(host.wait().unwrap().code().is_some());
        no_process_is_left(MARK, "supervisor");
        no_supervisor_is_left(&supervisors);
    }
}

#[cfg(unix)]
#[watched_test]
fn a_stopped_supervisor_is_continued_or_replaced() {
    let Some((host, supervisors)) = host("stopped", |_| ()) else { return };
    let inner = supervisors.iter().copied().max().unwrap();
    assert!(Command::new("kill").args(["-STOP", &inner.to_string()]).status().unwrap().success());
    host.signal(Signal::KILL).unwrap();
    no_process_is_left(MARK, "stopped");
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn an_unprivileged_user_can_supervise_a_tree() {
    if !is_root() {
        return skipped(Need::Root, "only root can become another user");
    }
    let Some((host, _)) = host("nobody", |command| {
        command.uid(65_534).gid(65_534);
    }) else {
        return;
    };
    host.signal(Signal::KILL).unwrap();
    no_process_is_left(MARK, "nobody");
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_killed_supervisor_does_not_hang_its_host() {
    let mut command = puppet(["spawn=daemon=600", "wait=600"]);
    command
        .env(MARK, alive::mark("waiting"))
        .stderr(Stdio::null())
        .kill_on_parent_exit(Scope::Tree);
    if cannot_supervise() {
        return;
    }
    let child = command.spawn().unwrap();
    watchdog::until("the daemon runs", || alive::marked(MARK, "waiting").len() >= 2);
    alive::kill(alive::parent(child.id()).unwrap());
    // The guard has adopted and killed it, and reports it.
    assert_eq!(child.wait().unwrap().terminating_signal(), Some(Signal::KILL));
    drop(child);
    no_process_is_left(MARK, "waiting");
}

/// A start that finds no room is tried again (a batch does so), and must not be made twice.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_start_whose_answer_is_lost_does_not_count_as_one_that_did_not_run() {
    if cannot_supervise() {
        return;
    }
    let mut command = puppet(["wait=600"]);
    command.env(MARK, alive::mark("lost")).stderr(Stdio::null()).kill_on_parent_exit(Scope::Tree);
    // Otherwise the first start tells that nothing is started before the program is known to work here.
    command.spawn().unwrap().kill().unwrap();
    pipewright_tests::kernel::refuse(&[libc::SYS_recvmsg], libc::ENOMEM);
    let error = command.spawn().unwrap_err();
    assert!(!error.is_start(), "{error}");
    assert!(error.to_string().starts_with("cannot confirm the start of "), "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    no_process_is_left(MARK, "lost");
}

/// The supervisor tells its host that it cannot tell the result.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_start_whose_answer_cannot_be_sent_does_not_count_as_one_that_did_not_run() {
    if cannot_supervise() {
        return;
    }
    let slot = TreeSlot::new().unwrap();
    // The host sends a request to a slot.
    for (own_sends, slot) in [(0, None), (1, Some(slot))] {
        let mut command = puppet(["wait=600"]);
        command.env(MARK, alive::mark("unsent")).stderr(Stdio::null());
        command.kill_on_parent_exit(Scope::Tree);
        if let Some(slot) = &slot {
            command.contain_in(slot);
        }
        let (sender, held) = mpsc::channel();
        let starts = thread::spawn(move || {
            sender.send(hold(libc::SYS_sendmsg)).unwrap();
            command.spawn().map(drop).unwrap_err()
        });
        let Some(held) = held.recv().unwrap() else {
            return skipped(Need::SeccompNotify, "no call can be held here");
        };
        (0..own_sends).for_each(|_| held.continue_call(held.wait_for_one()));
        // ENOMEM is one of the errors after which a batch starts a job again.
        held.fail_call(held.wait_for_one(), libc::ENOMEM);
        if own_sends == 0 {
            held.continue_call(held.wait_for_one());
        }
        let error = starts.join().unwrap();
        assert!(!error.is_start(), "{error}");
        assert!(error.to_string().starts_with("cannot confirm the start of "), "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        no_process_is_left(MARK, "unsent");
    }
}

#[watched_test]
fn a_child_alone_ends_with_its_parent() {
    let mut command = puppet(["wait=600"]);
    let child = command.kill_on_parent_exit(Scope::Child).spawn().unwrap();
    assert!(alive::is_running(child.id()));
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
