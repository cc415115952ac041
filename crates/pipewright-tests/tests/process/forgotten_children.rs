//! Forgotten and detached children leave no zombie and no handle.

use std::fs;
use std::fs::File;
use std::os::fd::AsRawFd;

use pipewright::{Command, ErrorKind, Scope, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::{count, pace, watchdog};

use super::tee::terminal;
use super::{printed_pid, puppet};

#[isolated_test]
fn forgotten_and_detached_children_leave_no_zombie_and_no_handle() {
    let before = count::handles();
    for round in 0..pace::rounds(60, 24) {
        let mut command = puppet([["exit=0", "wait=0.1", "raise=KILL"][round % 3]]);
        match round % 4 {
            0 => drop(command.start_and_forget().unwrap()),
            1 => drop(command.detached().start_and_forget().unwrap()),
            2 => drop(command.detached().start().unwrap()),
            _ => drop(command.detached().stdout(Stdio::piped()).spawn().unwrap()),
        }
    }
    let error = Command::new("/no/such").start_and_forget().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() == before);
    watchdog::until("the reaper has gone to rest", || count::threads() <= 3);
}

/// Returns the files behind the handles 0 to 2 of that process.
fn stdio_of(pid: u32) -> [String; 3] {
    [0, 1, 2].map(|number| {
        let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap();
        target.to_string_lossy().into_owned()
    })
}

#[isolated_test]
fn a_forgotten_child_has_null_stdio_by_default() {
    let file = File::open("/etc/passwd").unwrap();
    // Our stdio must differ from null.
    // SAFETY: numbers; this process runs nothing but this test.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 0) }, 0);
    look_at_stdio();
}

fn look_at_stdio() {
    let null = || ["/dev/null"; 3].map(str::to_owned);
    let forgotten = KillOnDrop(puppet(["wait=600"]).start_and_forget().unwrap());
    assert_eq!(stdio_of(forgotten.0), null());
    let merged = KillOnDrop(puppet(["wait=600"]).merge_stderr().start_and_forget().unwrap());
    assert_eq!(stdio_of(merged.0), null());
    for process in [puppet(["wait=600"]).detached().start().unwrap(), {
        puppet(["wait=600"]).detached().spawn().unwrap().into()
    }] {
        assert_eq!(stdio_of(process.pid()), null());
        process.kill().unwrap();
    }

    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut command = puppet(["out=said", "wait=600"]);
    command.stdout(Stdio::create(&log)).stderr(Stdio::inherit()).detached();
    let process = KillOnDrop(command.start_and_forget().unwrap());
    let ours = fs::read_link("/proc/self/fd/2").unwrap().to_string_lossy().into_owned();
    let log_name = log.to_string_lossy().into_owned();
    assert_eq!(stdio_of(process.0), ["/dev/null".to_owned(), log_name, ours]);
    watchdog::until("it has written it", || fs::read_to_string(&log).unwrap() == "said");

    // Verbs that capture go on capturing.
    assert_eq!(puppet(["out=x"]).detached().read().unwrap(), "x");
}

#[watched_test]
fn contradicting_options_are_refused() {
    let words = |change: fn(&mut Command) -> &mut Command| {
        let mut command = puppet(["exit=0"]);
        let error = change(&mut command).start_and_forget().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
        error.to_string()
    };
    let said = words(|command| command.detached().kill_on_parent_exit(Scope::Child));
    assert!(said.ends_with("`detached` and `kill_on_parent_exit` contradict each other"), "{said}");
    let said = words(|command| command.detached().process_group(1));
    assert!(
        said.ends_with("`detached` starts a session, so no process group can be set"),
        "{said}"
    );
    let said = words(|command| command.kill_on_drop());
    assert!(said.ends_with("returns no handle, so `kill_on_drop` has no effect"), "{said}");
    let said = words(|command| command.own_group().foreground());
    assert!(
        said.ends_with("`foreground` needs a call that waits: use `spawn` or `status`"),
        "{said}"
    );
    // A group of its own comes with the session.
    assert!(puppet(["exit=0"]).detached().own_group().status().unwrap().success());
}

#[watched_test]
fn a_detached_child_survives_the_end_of_the_terminal() {
    let (holder, terminal) = terminal();
    let mut command = puppet(["own-terminal", "detach=wait=600", "spawn=wait=600", "wait=600"]);
    command.own_session().stdin(terminal).stderr(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    drop(command);
    let pids = read_lines(&mut parent, 2);
    let (detached, other) = (KillOnDrop(pids[0]), KillOnDrop(pids[1]));
    drop(holder);
    assert_eq!(parent.wait().unwrap().terminating_signal(), Some(Signal::HUP));
    watchdog::until("the other child is gone", || !alive::is_running(other.0));
    assert!(alive::is_running(detached.0));
}

/// Returns the numbers that a child writes to stderr, a line each.
fn read_lines(child: &mut pipewright::Child, count: usize) -> Vec<u32> {
    let mut text = Vec::with_capacity(256);
    while text.iter().filter(|byte| **byte == b'\n').count() < count {
        assert_ne!(child.stderr.as_ref().unwrap().read_spare(&mut text).unwrap(), 0);
    }
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[watched_test]
fn a_detached_child_survives_the_death_of_its_parent_and_a_signal_to_its_group() {
    for signal in [Signal::KILL, Signal::INT] {
        let mut command = puppet(["detach=wait=600", "wait=600"]);
        let mut parent = command.own_session().stderr(Stdio::piped()).spawn().unwrap();
        let detached = KillOnDrop(printed_pid(&mut parent));
        let group = rustix::process::Pid::from_raw(parent.id() as i32).unwrap();
        // The parent is not reaped, so the group is still its own.
        let by_number = rustix::process::Signal::from_named_raw(signal.number()).unwrap();
        rustix::process::kill_process_group(group, by_number).unwrap();
        assert_eq!(parent.wait().unwrap().terminating_signal(), Some(signal));
        assert!(alive::is_running(detached.0));
        let stat = fs::read_to_string(format!("/proc/{}/stat", detached.0)).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // Fields 6 and 7 of proc(5): its session, which it leads, and its terminal, which is none.
        assert_eq!((fields[3], fields[4]), (detached.0.to_string().as_str(), "0"));
    }
}
