//! Contained trees in a poor environment: `/proc` hides others, stdio is closed, the cgroup is removed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pipewright::{Command, Contain, Containment, Scope, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_root, skipped};
use pipewright_tests::{alive, count, watchdog};

use super::{cannot_supervise, puppet};

const MARK: &str = "PIPEWRIGHT_TREES_DEPRIVED_TEST";

#[track_caller]
fn no_process_is_left(mark: &str) {
    watchdog::until("no process is left", || alive::marked(MARK, mark).is_empty());
}

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
    command.env(MARK, alive::mark("hidepid")).stdin(Stdio::null()).stderr(Stdio::null());
    let host = match command.spawn() {
        Ok(host) => host,
        Err(error) => return skipped(Need::Program("unshare"), error),
    };
    let mut ended = None;
    watchdog::until("the tree is complete", || {
        ended = host.try_wait().unwrap();
        ended.is_some() || alive::marked(MARK, "hidepid").len() >= 4
    });
    if let Some(ended) = ended {
        assert!(matches!(ended.code(), Some(1 | 77 | 127)), "{ended}");
        return skipped(Need::Mount, "this machine allows no mount namespace, or no private /proc");
    }
    host.signal(Signal::KILL).unwrap();
    no_process_is_left("hidepid");
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
            command.env(MARK, alive::mark("closed")).stdin(Stdio::null()).stderr(Stdio::null()),
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
        alive::marked(MARK, "closed").into_iter().for_each(alive::kill);
    }
    no_process_is_left("closed");
}

#[watched_test]
fn a_removed_cgroup_does_not_kill_the_command() {
    let mut command = puppet(["daemon=600", "out=x", "wait=600"]);
    command.env(MARK, alive::mark("vanished")).contain(Contain::Tree);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut byte = Vec::with_capacity(1);
    child.stdout.take().unwrap().read_spare(&mut byte).unwrap();
    if child.containment() != Containment::Cgroup {
        child.kill().unwrap();
        child.wait().unwrap();
        alive::marked(MARK, "vanished").into_iter().for_each(alive::kill);
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
    alive::marked(MARK, "vanished").into_iter().for_each(alive::kill);
    no_process_is_left("vanished");
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
