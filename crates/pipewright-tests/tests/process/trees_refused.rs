//! Trees in a sandbox that refuses one of the calls of containment, by a real seccomp filter: they are
//! contained by another facility, or the start reports that they cannot be.

use std::time::Duration;

use pipewright::{Contain, Containment, ErrorKind, Outcome, Scope, Stdio};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, pace, watchdog};

use super::puppet;
use super::refused::{refuse, refuse_flags};

const MARK: &str = "PIPEWRIGHT_TREES_REFUSED_TEST";

/// Not `ppoll`, without which nothing here can wait. `clone3`: see `refused::everything_works_without_clone3`.
const CALLS: [(&str, libc::c_long); 17] = [
    ("memfd_create", libc::SYS_memfd_create),
    ("execveat", libc::SYS_execveat),
    ("close_range", libc::SYS_close_range),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("socketpair", libc::SYS_socketpair),
    ("shutdown", libc::SYS_shutdown),
    ("signalfd4", libc::SYS_signalfd4),
    ("wait4", libc::SYS_wait4),
    ("kill", libc::SYS_kill),
    ("sendmsg", libc::SYS_sendmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("sendto", libc::SYS_sendto),
    ("recvfrom", libc::SYS_recvfrom),
    ("mkdirat", libc::SYS_mkdirat),
    ("lseek", libc::SYS_lseek),
    ("setpgid", libc::SYS_setpgid),
];

/// Checks containment, and panics if it fails.
fn trees_are_contained_or_the_start_reports_that_they_are_not(mark: &str) {
    let tree = |acts: &[&str]| {
        let mut command = puppet(acts);
        command.env(MARK, alive::mark(mark)).stderr(Stdio::null()).contain(Contain::Tree);
        command
    };
    let output = tempfile::tempfile().unwrap();
    let mut command = tree(&["out=x", "daemon=600", "exit=3"]);
    command.kill_on_parent_exit(Scope::Tree).stdout(output.try_clone().unwrap());
    match command.output() {
        Ok(output) => assert_eq!((output.status.code(), output.leftovers_killed), (Some(3), 1)),
        Err(error) => {
            assert_eq!(error.kind(), &ErrorKind::Unsupported, "{error}");
            assert_eq!(output.metadata().unwrap().len(), 0, "nothing ran without containment");
        }
    }
    let held = tree(&["exit=0"]).output().unwrap().containment;
    // A process that leaves its group is out of reach, and exits on its own.
    let (daemon, killed) =
        if held == Containment::Group { ("daemon=0.5", 0) } else { ("daemon=600", 1) };
    let output = tree(&[daemon, "exit=3"]).output().unwrap();
    assert_eq!(output.containment, held);
    assert_eq!((output.status.code(), output.leftovers_killed), (Some(3), killed), "{output:?}");
    let mut command = tree(&["spawn=wait=600", "wait=600"]);
    let output = command.timeout(pace::millis(200)).kill_grace(Duration::ZERO).output().unwrap();
    assert_eq!(output.outcome, Outcome::TimedOut);
    watchdog::until("no process is left", || alive::marked(MARK, mark).is_empty());
}

const REFUSED: &str = "PIPEWRIGHT_REFUSED_CALL";

/// Runs the same in processes that are refused one call each.
fn everywhere(errno: i32) {
    if let Ok(name) = std::env::var(REFUSED) {
        let call = CALLS.iter().find(|call| call.0 == name).unwrap().1;
        refuse(&[call], errno);
        return trees_are_contained_or_the_start_reports_that_they_are_not(&format!(
            "{name}-{errno}"
        ));
    }
    let whole = puppet(["exit=0"]).contain(Contain::Tree).output().unwrap();
    let mut failed = Vec::new();
    for (name, _) in CALLS {
        if name == "kill" && is_forced_off("pidfd") {
            // No process could be killed at all.
            continue;
        }
        if name == "setpgid" && whole.containment == Containment::Group {
            // The group is the only containment, and cannot be made without it.
            continue;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([watchdog::current_test().as_str(), "--exact", "--nocapture", "--test-threads=1"])
            .env(REFUSED, name);
        if !command.status().unwrap().success() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Checks that the supervisor contains a tree if no cgroup can be created, and that neither the supervisor nor the
/// guard keeps a handle of this process.
fn the_supervisor_contains_a_tree(mark: &str) {
    refuse(&[libc::SYS_mkdirat], libc::EPERM);
    // Without vfork it cannot be started.
    if ["supervisor", "pidfd", "vfork"].into_iter().any(is_forced_off) {
        return skipped(Need::Supervisor, "the supervisor is left out of this build");
    }
    // Not close-on-exec, as a library opens it that does not know of that flag.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut command = puppet(["daemon=600", "wait=600"]);
    command.env(MARK, alive::mark(mark)).contain(Contain::Tree).kill_on_drop();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    assert_eq!(child.containment(), Containment::Supervisor);
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0]).unwrap(), 0);
    child.kill().unwrap();
    drop(child);
    watchdog::until("nobody is left", || alive::marked(MARK, mark).is_empty());
}

#[isolated_test]
fn the_supervisor_works_without_close_range() {
    refuse(&[libc::SYS_close_range], libc::EPERM);
    the_supervisor_contains_a_tree("no-close-range");
}

/// Linux 5.10 knows `close_range` without flags.
#[isolated_test]
fn the_supervisor_works_without_flags_of_close_range() {
    refuse_flags(libc::SYS_close_range, 2);
    the_supervisor_contains_a_tree("no-flags");
}

#[isolated_test]
fn trees_are_contained_or_reported_if_a_call_fails_with_enosys() {
    everywhere(libc::ENOSYS);
}

#[isolated_test]
fn trees_are_contained_or_reported_if_a_call_fails_with_eperm() {
    everywhere(libc::EPERM);
}
