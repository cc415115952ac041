//! Slots: one tree after another, none left, and the holder's processes killed meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use pipewright::{Command, Containment, Outcome, Runner, Signal, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
#[cfg(unix)]
use pipewright_tests::skip::{Need, is_root, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{cannot_supervise, ended_by, puppet};

const MARK: &str = "PIPEWRIGHT_TREE_SLOT_TEST";

/// Returns true, and reports it, if this machine has no slots.
pub(super) fn has_no_slots() -> bool {
    cfg!(target_os = "macos") || cannot_supervise()
}

/// Returns a slot, or `None` and the report of it if there is none here.
fn slot() -> Option<TreeSlot> {
    (!has_no_slots()).then(|| TreeSlot::new().unwrap())
}

/// Returns a command in the slot, whose processes have that mark.
fn held<I: IntoIterator<Item = S>, S: AsRef<str>>(slot: &TreeSlot, mark: &str, acts: I) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).contain_in(slot).stderr(Stdio::null());
    command
}

#[track_caller]
fn no_process_is_left(mark: &str) {
    watchdog::until("no process is left", || alive::marked(MARK, mark).is_empty());
}

/// Returns the supervisor of a child, and its guard.
#[cfg(unix)]
fn holders(child: u32) -> [u32; 2] {
    let supervisor = alive::parent(child).unwrap();
    let guard = alive::parent(supervisor).unwrap();
    assert_eq!(alive::parent(guard), Some(std::process::id()));
    [supervisor, guard]
}

// Under Wine with both processors in use, a start takes more than a tenth of a second.
#[isolated_test(limit = Duration::from_secs(400))]
fn a_thousand_commands_run_one_after_another_and_leave_nothing() {
    let Some(slot) = slot() else { return };
    let run = |round: usize| {
        let code = (round % 100) as i32;
        let mut command = held(&slot, "many", [format!("exit={code}")]);
        let usage = match round % 3 {
            0 => {
                let capture = command.capture().unwrap();
                assert_eq!((capture.status.code(), capture.leftovers_killed), (Some(code), 0));
                assert_eq!(capture.containment, slot.containment());
                capture.usage
            }
            1 => {
                let output = command.output().unwrap();
                assert_eq!((output.status.code(), output.outcome), (Some(code), Outcome::Exited));
                output.usage
            }
            _ => {
                assert_eq!(command.status().unwrap().code(), Some(code));
                return;
            }
        };
        let usage = usage.unwrap();
        assert!(usage.user + usage.system > Duration::ZERO || cfg!(windows), "{usage:?}");
        // Wine does not know it of every process that has ended.
        let peak = usage.peak_rss_bytes.or(cfg!(windows).then_some(1 << 20)).unwrap();
        assert!((100 << 10..100 << 20).contains(&peak), "{peak}");
    };
    (0..3).for_each(run);
    let (handles, children) = (count::handles_at_rest(), count::children());
    (0..pace::rounds(1000, 100)).for_each(run);
    assert_eq!(count::handles_at_rest(), handles);
    assert_eq!(count::children(), children, "only what holds the trees");
    no_process_is_left("many");
    drop(slot);
    assert_eq!(count::children(), []);
}

#[watched_test]
fn leftovers_are_dead_before_the_next_command_starts_and_are_counted() {
    let Some(slot) = slot() else { return };
    for round in 0..pace::rounds(20, 5) {
        let acts = ["daemon=600", "spawn=daemon=600", "spawn=ignore=TERM;wait=600", "out=x"];
        let capture = held(&slot, "leftovers", acts).capture().unwrap();
        assert_eq!((capture.stdout.as_str(), capture.outcome), ("x", Outcome::Exited));
        // The middle process of the second tree may or may not have exited.
        assert!((3..=4).contains(&capture.leftovers_killed), "{round}: {capture:?}");
        assert_eq!(alive::marked(MARK, "leftovers"), [0_u32; 0], "{round}");
    }
}

#[watched_test]
fn every_verb_runs_a_command_in_a_slot() {
    let Some(slot) = slot() else { return };
    let command = |acts: &[&str]| held(&slot, "verbs", acts);
    assert!(command(&["exit=0"]).status().unwrap().success());
    command(&["daemon=600"]).run().unwrap();
    assert_eq!(command(&["out=x"]).read().unwrap(), "x");
    assert_eq!(command(&["lines=3", "daemon=600"]).lines().unwrap().count(), 3);
    assert!(command(&["out=x"]).events().unwrap().count() > 0);
    let fed = command(&["cat"]).stdin(Stdio::bytes(vec![b'x'; 1 << 20])).output().unwrap();
    assert_eq!(fed.stdout.len(), 1 << 20);
    let child = command(&["daemon=600", "exit=3"]).spawn().unwrap();
    assert_eq!(child.containment(), slot.containment());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(child);
    assert_eq!(alive::marked(MARK, "verbs"), [0_u32; 0]);
    let child = command(&["out=x", "wait=600"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child);
    assert_eq!(alive::marked(MARK, "verbs"), [0_u32; 0]);
    let handle = command(&["wait=600"]).start().unwrap();
    handle.kill().unwrap();
    handle.wait().unwrap();
    drop(handle);
    assert!(command(&["exit=0"]).status().unwrap().success());
    let piped = (command(&["out=abc"]) | puppet(["cat"])).read().unwrap();
    assert_eq!(piped, "abc");
}

#[watched_test]
fn a_runner_keeps_several_slots_busy() {
    if has_no_slots() {
        return;
    }
    let slots: Vec<_> = (0..4).map(|_| TreeSlot::new().unwrap()).collect();
    let mut runner = Runner::new(slots.len());
    let mut seen = HashSet::new();
    let rounds = pace::rounds(200, 40);
    let mut started = 0;
    let mut free: Vec<usize> = (0..slots.len()).collect();
    while seen.len() < rounds {
        while let Some(index) = (started < rounds).then(|| free.pop()).flatten() {
            let acts = ["daemon=600".to_owned(), format!("out={started}")];
            runner.push(index, held(&slots[index], "runner", acts));
            started += 1;
        }
        let (index, capture) = runner.next().unwrap();
        let capture = capture.unwrap();
        assert_eq!(capture.leftovers_killed, 1);
        assert!(seen.insert(capture.stdout));
        free.push(index);
    }
    assert_eq!(alive::marked(MARK, "runner"), [0_u32; 0]);
}

#[watched_test]
fn many_threads_use_their_slots_at_once() {
    if has_no_slots() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let slot = TreeSlot::new().unwrap();
                for round in 0..pace::rounds(40, 5) as i32 {
                    let code = (thread * 15 + round) % 100;
                    let acts = ["daemon=600".to_owned(), format!("exit={code}")];
                    let output = held(&slot, "threads", acts).output().unwrap();
                    assert_eq!(output.status.code(), Some(code));
                    assert!(output.leftovers_killed >= 1, "{output:?}");
                }
            });
        }
    });
    no_process_is_left("threads");
}

#[watched_test]
fn a_timeout_kills_the_whole_tree_and_the_slot_works_again() {
    let Some(slot) = slot() else { return };
    for round in 0..3 {
        let acts = ["out=x", "spawn=daemon=600", "spawn=spawn=ignore=TERM;wait=600", "wait=600"];
        let mut command = held(&slot, "timeout", acts);
        let capture = command.timeout(pace::millis(400)).kill_grace(pace::millis(50)).capture();
        let capture = capture.unwrap();
        assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::TimedOut, "x"), "{round}");
        assert_eq!(alive::marked(MARK, "timeout"), [0_u32; 0], "{round}");
        assert_eq!(held(&slot, "timeout", ["out=y"]).read().unwrap(), "y");
    }
}

#[watched_test]
fn a_kill_reaches_the_whole_tree() {
    let Some(slot) = slot() else { return };
    let child = held(&slot, "kill", ["spawn=daemon=600", "wait=600"]).spawn().unwrap();
    watchdog::until("the daemon runs", || alive::marked(MARK, "kill").len() >= 2);
    child.kill().unwrap();
    ended_by(child.wait().unwrap(), Signal::KILL);
    no_process_is_left("kill");
    drop(child);
    assert!(held(&slot, "kill", ["exit=0"]).status().unwrap().success());
}

#[watched_test]
fn trees_in_slots_end_when_their_host_is_killed() {
    if has_no_slots() {
        return;
    }
    let mut command = puppet(["slots=daemon=600;spawn=daemon=600;spawn=wait=600;wait=600"]);
    command.env(MARK, alive::mark("host")).stdin(Stdio::null()).stderr(Stdio::null());
    let host = command.spawn().unwrap();
    // Each slot has four, and the host is one.
    watchdog::until("the trees are complete", || alive::marked(MARK, "host").len() >= 13);
    #[cfg(unix)]
    let supervisors = {
        // Before its exec, one counts as a copy of the host, with its mark.
        let found = || alive::supervisors(host.id());
        watchdog::until("each slot has its supervisors", || found().len() == 6);
        found()
    };
    host.signal(Signal::KILL).unwrap();
    no_process_is_left("host");
    #[cfg(unix)]
    for pid in supervisors {
        watchdog::until("its supervisors end too", || !alive::is_running(pid));
    }
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn an_ordinary_user_can_use_slots() {
    if !is_root() {
        return skipped(Need::Root, "only root can become another user");
    }
    if has_no_slots() {
        return;
    }
    let mut command = puppet(["slots=daemon=600;wait=600"]);
    command.env(MARK, alive::mark("nobody")).stdin(Stdio::null()).stderr(Stdio::null());
    let host = command.uid(65_534).gid(65_534).spawn().unwrap();
    watchdog::until("the trees are complete", || alive::marked(MARK, "nobody").len() >= 7);
    host.signal(Signal::KILL).unwrap();
    no_process_is_left("nobody");
    host.wait().unwrap();
}

#[cfg(unix)]
#[watched_test]
fn a_killed_supervisor_or_guard_ends_the_tree_and_is_replaced() {
    let Some(slot) = slot() else { return };
    for round in 0..pace::rounds(6, 4) {
        let child = held(&slot, "killed", ["spawn=daemon=600", "wait=600"]).spawn().unwrap();
        watchdog::until("the daemon runs", || alive::marked(MARK, "killed").len() >= 2);
        let holders = holders(child.id());
        alive::kill(holders[round % 2]);
        assert_eq!(child.wait().unwrap().terminating_signal(), Some(Signal::KILL), "{round}");
        drop(child);
        no_process_is_left("killed");
        let child = held(&slot, "killed", ["wait=600"]).spawn().unwrap();
        let others = self::holders(child.id());
        assert!(others.iter().all(|pid| !holders.contains(pid)), "{round}");
        for pid in holders {
            watchdog::until("both have ended", || !alive::is_running(pid));
        }
        child.kill().unwrap();
    }
}

#[cfg(unix)]
#[watched_test]
fn a_supervisor_or_guard_that_is_killed_between_two_commands_is_replaced() {
    let Some(slot) = slot() else { return };
    for round in 0..pace::rounds(20, 6) {
        let child = held(&slot, "idle", ["wait=600"]).spawn().unwrap();
        let holders = holders(child.id());
        child.kill().unwrap();
        drop(child);
        alive::kill(holders[round % 2]);
        // A supervisor that has not seen the guard's end yet starts the command, which is then killed with it.
        if round % 4 != 0 {
            for pid in holders {
                watchdog::until("both have ended", || !alive::is_running(pid));
            }
        }
        assert_eq!(held(&slot, "idle", ["out=x"]).read().unwrap(), "x", "{round}");
    }
}

#[cfg(unix)]
#[watched_test]
fn a_stopped_supervisor_does_not_keep_a_tree_from_ending() {
    let Some(slot) = slot() else { return };
    let child = held(&slot, "stopped", ["spawn=daemon=600", "wait=600"]).spawn().unwrap();
    watchdog::until("the daemon runs", || alive::marked(MARK, "stopped").len() >= 2);
    let [supervisor, _] = holders(child.id());
    assert!(
        Command::new("kill").args(["-STOP", &supervisor.to_string()]).status().unwrap().success()
    );
    drop(child);
    no_process_is_left("stopped");
    assert_eq!(held(&slot, "stopped", ["out=x"]).read().unwrap(), "x");
    drop(slot);
    watchdog::until("it has ended", || !alive::is_running(supervisor));
}

#[watched_test]
fn dropping_a_slot_ends_what_holds_it_after_its_command() {
    let Some(slot) = slot() else { return };
    let child = held(&slot, "drop", ["wait=600"]).spawn().unwrap();
    drop(slot);
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    #[cfg(unix)]
    let holders = holders(child.id());
    drop(child);
    assert_eq!(alive::marked(MARK, "drop"), [0_u32; 0]);
    #[cfg(unix)]
    assert!(holders.iter().all(|pid| !alive::is_running(*pid)));
}

#[watched_test]
fn the_mechanism_of_a_slot_is_reported() {
    let Some(slot) = slot() else { return };
    let expected = if cfg!(windows) { Containment::Job } else { Containment::Supervisor };
    assert_eq!(slot.containment(), expected);
    assert_eq!(held(&slot, "report", ["exit=0"]).capture().unwrap().containment, expected);
}
