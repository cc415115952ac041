//! Contained trees under hostile limits, hosts and processes.

use pipewright::{Command, Contain, Containment, Scope, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_root, kernel, skipped};
use pipewright_tests::{alive, count, watchdog};

use super::{cannot_supervise, puppet};

const MARK: &str = "PIPEWRIGHT_TREES_HOSTILE_TEST";

/// Returns a command below a supervisor, whose processes have that mark.
fn supervised<I: IntoIterator<Item = S>, S: AsRef<str>>(mark: &str, acts: I) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).kill_on_parent_exit(Scope::Tree);
    command
}

#[track_caller]
fn no_process_is_left(mark: &str) {
    watchdog::until("no process is left", || alive::marked(MARK, mark).is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
}

#[isolated_test]
fn a_host_that_ignores_sigchld_still_gets_exit_statuses() {
    // SAFETY: SIG_IGN runs no code; this process runs only this test.
    let ignore = || unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if cannot_supervise() {
        return;
    }
    ignore();
    let supervised_one = supervised("ignores", ["status=SigIgn"]).read().unwrap();
    if kernel() >= (6, 15) {
        assert_eq!(supervised_one, puppet(["status=SigIgn"]).read().unwrap());
    } else {
        skipped(
            Need::PidfdInfo,
            "the kernel reaps plain children, and has their status since Linux 6.15 (PIDFD_GET_INFO)",
        );
    }
    let mut command = supervised("ignores", ["daemon=600", "exit=7"]);
    let output = command.stderr(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.leftovers_killed), (Some(7), 1));
    no_process_is_left("ignores");
}

#[watched_test]
fn a_command_in_a_group_of_its_own_can_be_stopped_by_its_terminal() {
    for scope in [None, Some(Scope::Tree)] {
        if scope.is_some() && cannot_supervise() {
            return;
        }
        let mut command = puppet(["wait=600"]);
        command.env(MARK, alive::mark("stopped")).own_group();
        if let Some(scope) = scope {
            command.kill_on_parent_exit(scope);
        }
        let child = command.spawn().unwrap();
        // The signal of Ctrl-Z. The kernel drops it if no process of the session could continue the group.
        child.signal("TSTP".parse::<Signal>().unwrap()).unwrap();
        watchdog::until(&format!("it has stopped {scope:?}"), || {
            alive::state(child.id()) == Some('T')
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[isolated_test]
fn a_start_without_free_handles_leaves_nothing() {
    if cannot_supervise() {
        return;
    }
    let set_limit = |soft: u64| {
        let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let new = rustix::process::Rlimit { current: Some(soft), maximum: old.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
        old.current.unwrap()
    };
    let open = pipewright_os::base::handle::open_handles().unwrap();
    let highest = open.iter().map(|handle| handle.number as u64).max().unwrap();
    // The two programs need some free numbers to arrange their handles, however few are open.
    let old = set_limit(19);
    let error = supervised("room", ["spawn=daemon=600", "exit=3"]).status().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
    set_limit(old);
    no_process_is_left("room");
    // No gap is left below that.
    let old = set_limit(highest + 1);
    let fill = || std::fs::File::open("/dev/null");
    let fillers: Vec<_> = std::iter::from_fn(|| fill().ok()).collect();
    set_limit(old);
    let before = count::handles();
    let mut started = 0;
    for room in 0..24 {
        let old = set_limit(highest + 1 + room);
        let mut command = supervised("room", ["spawn=daemon=600", "exit=3"]);
        command.stderr(Stdio::inherit());
        let result = command.stdin(Stdio::inherit()).status();
        set_limit(old);
        match result {
            Ok(status) => {
                assert_eq!(status.code(), Some(3), "with room for {room}");
                started += 1;
            }
            Err(error) => {
                eprintln!("{room}: {error}");
                assert_eq!(started, 0, "{error}, with room for {room}");
                let raw = error.raw_os_error();
                assert_eq!(raw, Some(libc::EMFILE), "{error}, with room for {room}");
            }
        }
        no_process_is_left("room");
        watchdog::until("every handle is closed", || count::handles() <= before);
    }
    assert!(started > 0);
    drop(fillers);
}

#[isolated_test]
fn a_process_limit_is_an_error_and_leaves_nothing() {
    if cannot_supervise() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root can become a user without other processes");
    }
    // Only this thread; no other process has that user.
    let user = 3_000_000 + std::process::id();
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
    for room in 1..=5 {
        let limit = libc::rlimit { rlim_cur: room, rlim_max: 4096 };
        // SAFETY: a live value.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
        match supervised("processes", ["exit=3"]).status() {
            Ok(status) => assert_eq!(status.code(), Some(3)),
            Err(error) => {
                eprintln!("{room}: {error}");
                let raw = error.raw_os_error();
                assert_eq!(raw, Some(libc::EAGAIN), "{error}, with room for {room}");
            }
        }
        watchdog::until("every child is reaped", || count::children().is_empty());
    }
}

#[watched_test]
fn killing_both_supervisors_at_once_does_not_free_the_command() {
    if cannot_supervise() {
        return;
    }
    let child = supervised("both", ["wait=600"]).spawn().unwrap();
    let (mut inner, mut outer) = (0, 0);
    watchdog::until("the supervisors are as expected", || {
        let all = alive::supervisors(std::process::id());
        let parent_of = |child| all.iter().copied().find(|pid| alive::is_child_of(child, *pid));
        inner = parent_of(child.id()).unwrap_or(0);
        outer = parent_of(inner).unwrap_or(0);
        outer != 0
    });
    for pid in [outer, inner] {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid as i32).unwrap(),
            rustix::process::Signal::STOP,
        )
        .unwrap();
    }
    alive::kill(outer);
    alive::kill(inner);
    let _ = child.wait();
    let pid = child.id();
    drop(child);
    watchdog::until("the command has ended", || !alive::is_running(pid));
}

#[isolated_test(in_a_session)]
fn the_exit_of_a_command_sends_no_sighup_to_its_host() {
    if cannot_supervise() {
        return;
    }
    // A process of the group is stopped while the last one exits whose parent is in another group of the session: the
    // kernel then ends the group, which is orphaned (setpgid(2)).
    let stopped = puppet(["wait=600"]).kill_on_drop().spawn().unwrap();
    stopped.signal(Signal::STOP).unwrap();
    watchdog::until("it is stopped", || alive::state(stopped.id()) == Some('T'));
    assert_eq!(supervised("hangup", ["exit=7"]).status().unwrap().code(), Some(7));
    no_supervisor_is_left();
    assert_eq!(alive::state(stopped.id()), Some('T'));
}

#[track_caller]
fn no_supervisor_is_left() {
    let host = std::process::id();
    watchdog::until("no supervisor is left", || alive::supervisors(host).is_empty());
}

#[watched_test]
fn nested_cgroups_are_part_of_the_tree() {
    let script =
        "top=$(grep cgroup2 /proc/mounts | head -n 1 | cut -d' ' -f2); test -n \"$top\" || exit 5
        cd \"$top/$(grep ^0:: /proc/self/cgroup | cut -d: -f3)\" && mkdir -p a/b || exit 5
        (echo 0 > a/b/cgroup.procs; exec setsid sleep 600) &
        until grep -q . a/b/cgroup.procs; do sleep 0.01; done; exit 5";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(MARK, alive::mark("below")).contain(Contain::Tree);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let capture = command.capture().unwrap();
    if capture.containment != Containment::Cgroup {
        // It may have left a group.
        alive::marked(MARK, "below").into_iter().for_each(alive::kill);
        return skipped(Need::Cgroup, "this machine has no cgroup");
    }
    assert_eq!((capture.status.code(), capture.leftovers_killed), (Some(5), 1));
    watchdog::until("no process is left", || alive::marked(MARK, "below").is_empty());
}

#[isolated_test]
fn too_many_handles_in_flight_is_an_error() {
    if cannot_supervise() {
        return;
    }
    if !is_root() {
        return skipped(Need::Root, "only root can become a user without other handles");
    }
    let user = 3_000_000 + std::process::id();
    // SAFETY: numbers; only this thread becomes that user.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 4096 };
    // SAFETY: a live value.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    // Two messages of sixty handles each, which are not received.
    let (from, _to) = std::os::unix::net::UnixStream::pair().unwrap();
    for _ in 0..2 {
        let handles = [std::os::fd::AsFd::as_fd(&from); 60];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(60))];
        let mut rights = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(rights.push(rustix::net::SendAncillaryMessage::ScmRights(&handles)));
        let part = [std::io::IoSlice::new(b"x")];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&from, &part, &mut rights, flags).unwrap();
    }
    let error = supervised("rights", ["wait=600"]).spawn().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ETOOMANYREFS), "{error}");
    no_process_is_left("rights");
}
