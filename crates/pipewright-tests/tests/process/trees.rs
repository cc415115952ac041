//! Contained trees: no process escapes, and none is left.

use std::time::Duration;

use pipewright::{Command, Contain, Containment, ErrorKind, Outcome, Scope, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{cannot_supervise, ended_by, no_process_is_left, puppet};

const MARK: &str = "PIPEWRIGHT_TREE_TEST";

/// Returns a command whose tree is contained, and whose processes have that mark.
fn held<I: IntoIterator<Item = S>, S: AsRef<str>>(mark: &str, acts: I) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).contain(Contain::Tree);
    command
}

fn shell(mark: &str, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env(MARK, alive::mark(mark)).contain(Contain::Tree);
    command
}

/// Returns true, and reports it, if a group is the only containment here.
fn only_a_group() -> bool {
    let only = puppet(["exit=0"]).contain(Contain::Tree).capture().unwrap().containment
        == Containment::Group;
    if only {
        skipped(Need::Supervisor, "this machine has neither a cgroup nor a supervisor");
    }
    only
}

#[watched_test]
fn the_best_available_containment_is_used_and_reported() {
    let containment = held("best", ["out=x"]).capture().unwrap().containment;
    let no_supervisor = is_forced_off("supervisor") || is_forced_off("pidfd");
    match containment {
        Containment::Job if cfg!(windows) => {}
        Containment::Cgroup => assert!(!is_forced_off("cgroup")),
        Containment::Supervisor => assert!(!no_supervisor),
        other => {
            assert_eq!(other, Containment::Group);
            assert!(no_supervisor || cannot_supervise(), "not contained, without a reason");
        }
    }
    assert_eq!(puppet(["out=x"]).capture().unwrap().containment, Containment::None);
    assert_eq!(puppet(["out=x"]).own_group().capture().unwrap().containment, Containment::Group);
    let mut command = puppet(["out=x"]);
    assert_eq!(command.contain(Contain::Group).capture().unwrap().containment, Containment::Group);
    assert_eq!(command.contain(Contain::None).capture().unwrap().containment, Containment::None);
    #[cfg(unix)]
    {
        let capture = puppet(["status=NSpgid"]).contain(Contain::Group).capture().unwrap();
        assert!(capture.stdout.ends_with(&capture.pid.to_string()), "it leads its group");
    }
}

#[watched_test]
fn leftovers_of_the_command_are_killed_and_counted() {
    if only_a_group() {
        return;
    }
    // Three: a daemon in a session of its own, an orphan, and one that ignores TERM.
    let acts = ["daemon=600", "spawn=daemon=600", "spawn=ignore=TERM;wait=600", "out=done"];
    let mut command = held("leftovers", acts);
    let capture = command.stderr(Stdio::null()).capture().unwrap();
    assert_eq!((capture.stdout.as_str(), capture.outcome), ("done", Outcome::Exited));
    assert!(capture.status.success());
    no_process_is_left(MARK, "leftovers");
    // The middle process of the second tree may or may not have exited.
    assert!((3..=4).contains(&capture.leftovers_killed), "{}", capture.leftovers_killed);
    // It reaps its own child before it exits.
    let capture = held("nothing", ["spawn-and-reap=exit=0"]).capture().unwrap();
    assert_eq!(capture.leftovers_killed, 0);
}

#[watched_test]
fn the_processes_of_a_tree_are_listed_until_they_have_ended() {
    if only_a_group() {
        return;
    }
    if is_forced_off("pidfd") {
        let mut command = held("list", ["wait=600"]);
        let child = command.spawn().unwrap();
        assert_eq!(child.tree_processes().unwrap_err().kind(), &ErrorKind::Unsupported);
        return child.kill().unwrap();
    }
    let mut command = held("list", ["daemon=600", "out=x", "wait=600"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let sorted = |mut pids: Vec<u32>| {
        pids.sort_unstable();
        pids
    };
    watchdog::until("both are listed", || {
        let listed = sorted(child.tree_processes().unwrap());
        let marked = sorted(alive::marked(MARK, "list"));
        assert!(listed.contains(&child.pid()));
        listed.len() == 2 && listed == marked
    });
    child.kill().unwrap();
    child.wait().unwrap();
    watchdog::until("none is left", || child.tree_processes().unwrap().is_empty());
    drop(child.stdout.take());
}

#[watched_test]
fn a_timeout_reaches_detached_descendants() {
    if only_a_group() {
        return;
    }
    let acts = ["spawn=daemon=600", "spawn=spawn=ignore=TERM;wait=600", "wait=0.1", "wait=600"];
    let mut command = held("timeout", acts);
    command.stderr(Stdio::null()).timeout(pace::millis(400));
    let capture = command.kill_grace(pace::millis(100)).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    no_process_is_left(MARK, "timeout");
}

#[cfg(unix)]
#[watched_test]
fn every_process_of_a_tree_gets_the_stop_signal_before_any_kill() {
    if only_a_group() {
        return;
    }
    if is_forced_off("pidfd") {
        return skipped(
            Need::Pidfd,
            "the processes of a cgroup can only be checked through pidfds",
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let (ready, asked) = (dir.path().join("ready"), dir.path().join("asked"));
    // In a session of its own, below a parent that has exited.
    let script = format!(
        "(setsid sh -c 'trap \"touch {}; exit\" TERM; touch {}; while :; do sleep 0.01; done' &) \
         ; exec sleep 600",
        asked.display(),
        ready.display()
    );
    let child = shell("asked", &script).timeout(pace::seconds(2)).spawn().unwrap();
    watchdog::until("the daemon listens", || ready.exists());
    child.wait().unwrap();
    assert!(asked.exists(), "it was not asked");
    drop(child);
    no_process_is_left(MARK, "asked");
}

#[watched_test]
fn a_kill_and_a_drop_end_the_whole_tree() {
    if only_a_group() {
        return;
    }
    for drops in [false, true] {
        let mut command = held("kill", ["spawn=daemon=600", "out=x", "wait=600"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        watchdog::until("the daemon runs", || alive::marked(MARK, "kill").len() >= 2);
        let pid = child.id();
        if !drops {
            child.kill().unwrap();
            ended_by(child.wait().unwrap(), Signal::KILL);
        }
        drop(child);
        no_process_is_left(MARK, "kill");
        watchdog::until("it is reaped", || alive::state(pid).is_none());
    }
}

#[cfg(unix)]
#[watched_test]
fn a_grandchild_cannot_escape() {
    if only_a_group() {
        return;
    }
    for (what, script) in [
        ("ignores", "(setsid sh -c 'trap \"\" TERM INT HUP; sleep 600; sleep 600' &)"),
        ("stopped", "(setsid sh -c 'kill -STOP $$; sleep 600' &)"),
        ("closed", "(setsid sh -c 'exec <&- >&- 2>&-; sleep 600' &)"),
        (
            "deep",
            "(setsid sh -c '(setsid sh -c \"(setsid sleep 600 &) ; sleep 600\" &) ; sleep 600' &)",
        ),
        ("reniced", "(setsid nice -n 19 sleep 600 &)"),
    ] {
        let script = format!("{script} ; sleep 0.1");
        let mut command = shell(what, &script);
        let capture = command.stdout(Stdio::null()).stderr(Stdio::null()).capture().unwrap();
        assert!(capture.status.success() && capture.leftovers_killed >= 1, "{what}: {capture:?}");
        no_process_is_left(MARK, what);
    }
}

#[cfg(unix)]
#[watched_test]
fn a_traced_grandchild_does_not_escape() {
    if only_a_group() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped(Need::Program("strace"), "there is no strace here");
    }
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready").display().to_string();
    let traced = format!("setsid strace -f -o /dev/null sh -c ': > {ready}; sleep 600; :'");
    let script = format!("({traced} &) ; until [ -e {ready} ]; do sleep 0.05; done");
    let mut command = shell("traced", &script);
    let capture = command.stdout(Stdio::null()).stderr(Stdio::null()).capture().unwrap();
    assert!(capture.leftovers_killed >= 2, "{capture:?}");
    no_process_is_left(MARK, "traced");
}

#[cfg(unix)]
#[watched_test]
fn a_fork_bomb_is_contained() {
    if only_a_group() {
        return;
    }
    // Each of three keeps starting daemons while it is stopped; 600 in all at most.
    let script = "for j in 1 2 3; do (i=0; while [ $i -lt 200 ]; do (setsid sleep 600 &); \
                 i=$((i+1)); done) & done; wait; sleep 600";
    let mut command = shell("storm", script);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.timeout(pace::millis(150)).kill_grace(Duration::ZERO);
    let capture = command.capture().unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    no_process_is_left(MARK, "storm");
}

#[cfg(unix)]
#[watched_test]
fn a_contained_child_behaves_like_any_other() {
    for scope in [None, Some(Scope::Tree)] {
        if scope.is_some() && cannot_supervise() {
            return;
        }
        let command = |acts: &[&str]| {
            let mut command = puppet(acts);
            command.contain(Contain::Tree);
            if let Some(scope) = scope {
                command.kill_on_parent_exit(scope);
            }
            command
        };
        let plain = puppet(["handles"]).read().unwrap();
        assert_eq!(command(&["handles"]).read().unwrap(), plain, "handles");
        for field in ["SigBlk", "SigIgn", "SigCgt", "NSsid", "Groups", "Umask"] {
            let act = format!("status={field}");
            let plain = puppet([&act]).read().unwrap();
            assert_eq!(command(&[&act]).read().unwrap(), plain, "{field}");
        }
        assert_eq!(command(&["exit=7"]).status().unwrap().code(), Some(7));
        assert_eq!(
            command(&["raise=USR1"]).status().unwrap().terminating_signal(),
            Some("USR1".parse().unwrap())
        );
        let fed = command(&["cat"]).stdin(Stdio::bytes(vec![b'x'; 1 << 20])).output().unwrap();
        assert_eq!(fed.stdout.len(), 1 << 20);
        let usage = command(&["out-bytes=100000"]).output().unwrap().usage.unwrap();
        assert!(usage.user + usage.system > Duration::ZERO);
        let error = Command::new("no-such-program").contain(Contain::Tree).status().unwrap_err();
        assert!(error.to_string().contains("not found in PATH"), "{error}");
        let mut missing = command(&[]);
        let error = missing.current_dir("/no/such/directory").status().unwrap_err();
        assert!(error.to_string().contains("/no/such/directory"), "{error}");
    }
}

#[isolated_test]
fn contained_trees_leave_nothing_behind() {
    if only_a_group() || cannot_supervise() {
        return;
    }
    let run = |round: usize| {
        let mut command = match round % 4 {
            0 => held("leak", ["out=x"]),
            1 => held("leak", ["daemon=600", "exit=1"]),
            2 => Command::new("no-such-program"),
            _ => held("leak", ["wait=600"]),
        };
        command.contain(Contain::Tree).kill_grace(Duration::ZERO);
        if round % 8 >= 4 {
            command.kill_on_parent_exit(Scope::Tree);
        }
        if round % 4 == 3 {
            command.timeout(Duration::from_millis(5));
        }
        // The one that is not found is an error.
        let _ = command.capture();
    };
    (0..16).for_each(run);
    watchdog::until("the first are reaped", || count::children().is_empty());
    let before = count::handles();
    (0..pace::rounds(160, 48)).for_each(run);
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before);
    no_process_is_left(MARK, "leak");
    let own = format!("pipewright-{}-", std::process::id());
    let cgroups = walk("/sys/fs/cgroup".as_ref());
    assert!(!cgroups.iter().any(|name| name.starts_with(&own)), "a cgroup is left");
}

/// Returns the names of all directories below one.
fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
            names.extend(walk(&entry.path()));
        }
    }
    names
}

#[watched_test]
fn many_threads_hold_trees_at_once() {
    if only_a_group() || cannot_supervise() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for round in 0..pace::rounds(15, 3) as i32 {
                    let code = (thread * 15 + round) % 100;
                    let mut command = puppet(["daemon=600".to_owned(), format!("exit={code}")]);
                    command
                        .env(MARK, alive::mark("threads"))
                        .contain(Contain::Tree)
                        .stderr(Stdio::null());
                    if round % 2 == 0 {
                        command.kill_on_parent_exit(Scope::Tree);
                    }
                    let output = command.output().unwrap();
                    assert_eq!(output.status.code(), Some(code));
                    // Wine gives each console a process of its own, which belongs to the tree.
                    assert!(output.leftovers_killed >= 1, "{output:?}");
                    assert!(output.leftovers_killed == 1 || cfg!(windows), "{output:?}");
                }
            });
        }
    });
    no_process_is_left(MARK, "threads");
}
