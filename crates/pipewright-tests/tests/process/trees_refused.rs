//! Trees and starts in a sandbox that refuses newer calls, by a real seccomp filter, and in a poor environment: `/proc`
//! hides others, stdio is closed, the cgroup is removed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pipewright::{
    Command, Contain, Containment, ErrorKind, Outcome, ProcessHandle, Scope, Signal, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, is_root, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use crate::{cannot_supervise, no_process_is_left, puppet, with_time};

pub(crate) use pipewright_tests::kernel::{refuse, refuse_flags};

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

const DEPRIVED_MARK: &str = "PIPEWRIGHT_TREES_DEPRIVED_TEST";

#[watched_test]
fn a_tree_ends_with_its_host_under_hidepid() {
    if cannot_supervise() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root can mount a /proc that hides others (hidepid)");
    }
    // The host is an ordinary user there, and sees no process but its own.
    let script = "mount -t proc -o hidepid=2 proc /proc || exit 77; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let acts = "host=daemon=600;spawn=daemon=600;wait=600";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_puppet"), acts]);
    command.env(DEPRIVED_MARK, alive::mark("hidepid")).stdin(Stdio::null()).stderr(Stdio::null());
    let host = match command.spawn() {
        Ok(host) => host,
        Err(error) => return skipped(Need::Program("unshare"), error),
    };
    let mut ended = None;
    watchdog::until("the tree is complete", || {
        ended = host.try_wait().unwrap();
        ended.is_some() || alive::marked(DEPRIVED_MARK, "hidepid").len() >= 4
    });
    if let Some(ended) = ended {
        assert!(matches!(ended.code(), Some(1 | 77 | 127)), "{ended}");
        return skipped(Need::Mount, "this machine allows no mount namespace, or no private /proc");
    }
    host.signal(Signal::KILL).unwrap();
    no_process_is_left(DEPRIVED_MARK, "hidepid");
    host.wait().unwrap();
}

#[isolated_test]
fn a_host_without_stdio_can_contain_trees() {
    // The first use allocates the handles that stay.
    puppet(["exit=0"]).contain(Contain::Tree).status().unwrap();
    // Ignored, here and below: it may be refused.
    let _ = puppet(["exit=0"]).kill_on_parent_exit(Scope::Tree).status();
    // Above the three, or the copies would take their numbers.
    // SAFETY: numbers.
    let kept = [0, 1, 2].map(|fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) });
    let before = count::handles_at_rest();
    for fd in 0..3 {
        // SAFETY: std's handles on them only ever fail from now on; this process runs nothing
        // but this test.
        unsafe { libc::close(fd) };
    }
    // Nothing can be printed before they are restored, so a panic must come later.
    let run = |contain: fn(&mut Command)| {
        let mut command = puppet(["daemon=600", "out=x", "exit=7"]);
        contain(
            command
                .env(DEPRIVED_MARK, alive::mark("closed"))
                .stdin(Stdio::null())
                .stderr(Stdio::null()),
        );
        command.output().map(|it| (it.status.code(), it.stdout, it.containment))
    };
    let tree = run(|command| _ = command.contain(Contain::Tree));
    let ends_with_us = run(|command| _ = command.kill_on_parent_exit(Scope::Tree));
    watchdog::until("every handle is closed", || count::handles() <= before - 3);
    let open = count::handles();
    for (fd, kept) in kept.into_iter().enumerate() {
        // SAFETY: nothing else owns that number.
        unsafe { libc::dup2(kept, fd as i32) };
    }
    assert_eq!(open, before - 3, "of the three none is open, and no other was left");
    let (code, stdout, containment) = tree.unwrap();
    assert_eq!((code, stdout.as_slice()), (Some(7), b"x".as_slice()));
    match ends_with_us {
        Ok((code, stdout, _)) => assert_eq!((code, stdout.as_slice()), (Some(7), &b"x"[..])),
        Err(error) => {
            assert!(matches!(error.kind(), pipewright::ErrorKind::Unsupported), "{error}")
        }
    }
    if containment == Containment::Group {
        // The daemon has left the cgroup.
        alive::marked(DEPRIVED_MARK, "closed").into_iter().for_each(alive::kill);
    }
    no_process_is_left(DEPRIVED_MARK, "closed");
}

#[watched_test]
fn a_removed_cgroup_does_not_kill_the_command() {
    let mut command = puppet(["daemon=600", "out=x", "wait=600"]);
    command.env(DEPRIVED_MARK, alive::mark("vanished")).contain(Contain::Tree);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut byte = Vec::with_capacity(1);
    child.stdout.take().unwrap().read_spare(&mut byte).unwrap();
    if child.containment() != Containment::Cgroup {
        child.kill().unwrap();
        child.wait().unwrap();
        alive::marked(DEPRIVED_MARK, "vanished").into_iter().for_each(alive::kill);
        return skipped(Need::Cgroup, "this machine has no cgroup");
    }
    let cgroup = cgroup_of(child.id()).unwrap();
    let parent = cgroup.parent().unwrap();
    for pid in fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().lines() {
        fs::write(parent.join("cgroup.procs"), pid).unwrap();
    }
    fs::remove_dir(&cgroup).unwrap();
    // A process that was moved out is out of reach; the command itself never is.
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().terminating_signal(), Some(Signal::KILL));
    drop(child);
    alive::marked(DEPRIVED_MARK, "vanished").into_iter().for_each(alive::kill);
    no_process_is_left(DEPRIVED_MARK, "vanished");
}

#[isolated_test]
fn cgroups_left_by_a_killed_tree_are_removed_by_the_next() {
    // No process has the number of its owner.
    let name = format!("pipewright-{}-{}", u32::MAX, std::process::id());
    let left = cgroup_of(std::process::id()).map(|own| own.join(name));
    let Some(left) = left.filter(|left| fs::create_dir(left).is_ok()) else {
        return skipped(Need::Cgroup, "this machine has no cgroup");
    };
    fs::create_dir_all(left.join("pipewright-1-0/own")).unwrap();
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&left).unwrap().set_modified(an_hour_ago).unwrap();
    let mut command = puppet(["exit=0"]);
    let done = command.contain(Contain::Tree).capture().unwrap();
    let is_left = left.exists();
    for dir in ["pipewright-1-0/own", "pipewright-1-0", ""] {
        let _ = fs::remove_dir(left.join(dir));
    }
    if done.containment != Containment::Cgroup {
        return skipped(Need::Cgroup, "this machine has no cgroup");
    }
    assert!(!is_left, "{left:?}");
}

#[isolated_test]
fn trees_of_a_moved_process_are_made_in_its_current_cgroup() {
    let held = || {
        let mut command = puppet(["wait=600"]);
        let child = command.contain(Contain::Tree).kill_on_drop().spawn().unwrap();
        (child.containment(), cgroup_of(child.id()))
    };
    let Some(before) = cgroup_of(std::process::id()) else {
        return skipped(Need::Cgroup, "this machine has no cgroup");
    };
    let (containment, cgroup) = held();
    if containment != Containment::Cgroup {
        return skipped(Need::Cgroup, "this machine has no cgroup");
    }
    assert_eq!(cgroup.unwrap().parent(), Some(before.as_path()));
    let other = before.join(format!("moved-{}", std::process::id()));
    fs::create_dir(&other).unwrap();
    let move_to = |dir: &PathBuf| fs::write(dir.join("cgroup.procs"), "0").unwrap();
    move_to(&other);
    let (containment, cgroup) = held();
    move_to(&before);
    let back = held();
    fs::remove_dir(&other).unwrap();
    assert_eq!(containment, Containment::Cgroup);
    assert_eq!(cgroup.unwrap().parent(), Some(other.as_path()));
    assert_eq!(back.1.unwrap().parent(), Some(before.as_path()));
}

/// Returns the path of the cgroup of that process.
fn cgroup_of(pid: u32) -> Option<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    Some(PathBuf::from(mount.split(' ').nth(1)?).join(path.trim_start_matches('/')))
}

/// Runs calls of every kind.
fn everything_works() {
    let capture = puppet(["out=a", "err=b", "exit=3"]).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("a", "b"));
    assert_eq!(capture.status.code(), Some(3));

    let output = puppet(["cat-both"]).stdin(Stdio::bytes(vec![7; 300_000])).output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 300_000));

    let mut command = puppet(["out=so far", "wait=600"]);
    command.own_group();
    with_time(pace::seconds(1), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        assert!(!alive::is_running(capture.pid));
        (capture.stdout == "so far").then_some(())
    });

    let child = puppet(["wait=600"]).spawn().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(child.signal(Signal::TERM).unwrap());
    assert_eq!(child.wait().unwrap().terminating_signal(), Some(Signal::TERM));
    assert!(!child.signal(Signal::TERM).unwrap());

    let process = ProcessHandle::start(&mut puppet(["wait=600"])).unwrap();
    assert_eq!(process.try_wait_for(Duration::from_millis(10)).unwrap(), None);
    let end = process.wait_or_kill_on_timeout(Duration::ZERO).unwrap();
    assert_eq!(end.outcome, Some(Outcome::TimedOut));
    if let Err(error) = ProcessHandle::open(std::process::id()) {
        assert_eq!(error.kind(), &ErrorKind::Unsupported);
    }

    let handles = puppet(["handles"]).read().unwrap();
    assert_eq!(handles.lines().count(), 3, "{handles}");
    assert!(Command::new("no-such-program").status().is_err());

    let before = count::handles();
    drop(puppet(["wait=0.05"]).spawn().unwrap());
    watchdog::until("a dropped child is reaped", || {
        // glibc starts no thread where clone3 is forbidden (and not unknown): the next start of a
        // child reaps then.
        Command::new("true").status().unwrap();
        count::children().is_empty()
    });
    watchdog::until("its handles are closed", || count::handles() <= before);
}

const NEWER: [libc::c_long; 5] = [
    libc::SYS_clone3,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_close_range,
    libc::SYS_faccessat2,
];

#[isolated_test]
fn everything_works_if_newer_calls_fail_with_enosys() {
    refuse(&NEWER, libc::ENOSYS);
    everything_works();
}

#[isolated_test]
fn everything_works_if_newer_calls_fail_with_eperm() {
    refuse(&NEWER, libc::EPERM);
    everything_works();
}

#[isolated_test]
fn everything_works_without_clone3() {
    refuse(&[libc::SYS_clone3], libc::EPERM);
    everything_works();
}

#[isolated_test]
fn everything_works_without_pidfd_open() {
    refuse(&[libc::SYS_pidfd_open], libc::EPERM);
    everything_works();
}

#[isolated_test]
fn everything_works_without_pidfd_send_signal() {
    refuse(&[libc::SYS_pidfd_send_signal], libc::EPERM);
    everything_works();
}

#[isolated_test]
fn everything_works_without_close_range() {
    refuse(&[libc::SYS_close_range], libc::EPERM);
    everything_works();
}
