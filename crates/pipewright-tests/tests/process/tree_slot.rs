//! Slots: one tree after another, none left, and the holder's processes killed meanwhile; also in a runner.

use std::collections::HashSet;
use std::time::Duration;

use pipewright::{
    Command, Contain, Containment, ErrorKind, Next, Outcome, Runner, Signal, Stdio, TreeSlot,
};
use pipewright_test_macros::{isolated_test, watched_test};
#[cfg(unix)]
use pipewright_tests::TRUE;
#[cfg(unix)]
use pipewright_tests::skip::{Need, is_root, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

#[cfg(target_os = "linux")]
use crate::trees_hostile;
use crate::{cannot_supervise, ended_by, no_process_is_left, puppet, with_time};

const MARK: &str = "PIPEWRIGHT_TREE_SLOT_TEST";

/// Returns true, and reports it, if this machine has no slots.
pub(super) fn has_no_slots() -> bool {
    cfg!(target_os = "macos") || cannot_supervise()
}

/// Returns a slot, or `None` and the report of it if there is none here.
pub(super) fn slot() -> Option<TreeSlot> {
    (!has_no_slots()).then(|| TreeSlot::new().unwrap())
}

/// Returns a command in the slot, whose processes have that mark.
fn held<I: IntoIterator<Item = S>, S: AsRef<str>>(slot: &TreeSlot, mark: &str, acts: I) -> Command {
    let mut command = puppet(acts);
    command.env(MARK, alive::mark(mark)).contain_in(slot).stderr(Stdio::null());
    command
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
    no_process_is_left(MARK, "many");
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
    no_process_is_left(MARK, "threads");
}

#[watched_test]
fn a_timeout_kills_the_whole_tree_and_the_slot_works_again() {
    let Some(slot) = slot() else { return };
    for round in 0..3 {
        let acts = ["out=x", "spawn=daemon=600", "spawn=spawn=ignore=TERM;wait=600", "wait=600"];
        let mut command = held(&slot, "timeout", acts);
        command.kill_grace(pace::millis(50));
        with_time(pace::millis(400), |time| {
            let capture = command.timeout(time).capture().unwrap();
            assert_eq!(capture.outcome, Outcome::TimedOut, "{round}");
            assert_eq!(alive::marked(MARK, "timeout"), [0_u32; 0], "{round}");
            (capture.stdout == "x").then_some(())
        });
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
    no_process_is_left(MARK, "kill");
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
    no_process_is_left(MARK, "host");
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
    no_process_is_left(MARK, "nobody");
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
        no_process_is_left(MARK, "killed");
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
    no_process_is_left(MARK, "stopped");
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

/// Returns that many slots, or none, and the report of it, if there are none here.
fn slots(count: usize) -> Vec<TreeSlot> {
    let count = if has_no_slots() { 0 } else { count };
    (0..count).map(|_| TreeSlot::new().unwrap()).collect()
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_slot_that_does_not_answer_delays_no_other() {
    use pipewright_tests::watchdog;

    let slots = slots(2);
    let [first, second] = &slots[..] else { return };
    let child = held(first, "answer", ["wait=600"]).spawn().unwrap();
    let supervisor = alive::parent(child.id()).unwrap();
    let guard = alive::parent(supervisor).unwrap();
    drop(child);
    let signal = |name: &str, pid: u32| {
        let mut kill = Command::new("kill");
        assert!(kill.args([name, &pid.to_string()]).status().unwrap().success());
    };
    // The guard would continue it.
    for pid in [guard, supervisor] {
        signal("-STOP", pid);
        watchdog::until("it is stopped", || alive::state(pid) == Some('T'));
    }
    let mut runner = Runner::new(2);
    runner.push("first", held(first, "answer", ["out=1"]));
    for round in ["a", "b", "c"] {
        runner.push(round, held(second, "answer", ["out=2"]));
        let (key, capture) = runner.next().unwrap();
        assert_eq!((key, capture.unwrap().stdout.as_str()), (round, "2"));
        assert_eq!((runner.len(), runner.running()), (1, 1));
    }
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    signal("-CONT", supervisor);
    signal("-CONT", guard);
    let (key, capture) = runner.next().unwrap();
    assert_eq!((key, capture.unwrap().stdout.as_str()), ("first", "1"));
    assert!(runner.next().is_none());
}

#[isolated_test]
fn a_failed_start_in_a_slot_is_the_result_of_its_command() {
    let slots = slots(3);
    if slots.is_empty() {
        return;
    }
    let mut runner = Runner::new(slots.len());
    let mut run = || {
        for (number, slot) in slots.iter().enumerate() {
            match number {
                1 => {
                    let mut missing = Command::new("/no/such/program");
                    runner.push(number, missing.contain_in(slot).owned());
                }
                _ => runner.push(number, held(slot, "failed", ["daemon=600", "out=x"])),
            }
        }
        let mut ends: Vec<_> = runner.by_ref().collect();
        ends.sort_by_key(|(number, _)| *number);
        for (number, end) in ends {
            match end {
                Ok(capture) => {
                    assert_eq!((capture.stdout.as_str(), capture.leftovers_killed), ("x", 1))
                }
                Err(error) => {
                    assert_eq!(number, 1);
                    assert!(
                        error.is_start() && matches!(error.kind(), ErrorKind::NotFound { .. }),
                        "{error}"
                    );
                    assert!(error.to_string().contains("/no/such/program"), "{error}");
                }
            }
        }
    };
    run();
    let (handles, children) = (count::handles_at_rest(), count::children());
    (0..pace::rounds(100, 20)).for_each(|_| run());
    assert_eq!(count::handles_at_rest(), handles);
    assert_eq!(count::children(), children, "only what holds the trees");
}

#[watched_test]
fn a_command_can_be_cancelled_while_it_starts() {
    let slots = slots(1);
    let [slot] = &slots[..] else { return };
    for _ in 0..pace::rounds(50, 10) {
        let mut runner = Runner::new(1);
        let mut command = held(slot, "cancelled", ["daemon=600", "wait=600"]);
        runner.push((), command.kill_grace(Duration::ZERO).owned());
        assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
        assert!(runner.cancel(&()));
        let ((), capture) = runner.next().unwrap();
        assert_eq!(capture.unwrap().outcome, Outcome::Cancelled);
        assert_eq!(alive::marked(MARK, "cancelled"), [0_u32; 0]);
    }
}

#[watched_test]
fn dropping_a_runner_ends_what_is_starting() {
    let slots = slots(2);
    if slots.is_empty() {
        return;
    }
    for _ in 0..pace::rounds(50, 10) {
        let mut runner = Runner::new(2);
        for slot in &slots {
            runner.push((), held(slot, "dropped", ["daemon=600", "wait=600"]));
        }
        assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
        drop(runner);
        // The next start waits for the end of the last tree.
        for slot in &slots {
            assert_eq!(held(slot, "next", ["out=x"]).read().unwrap(), "x");
        }
        assert_eq!(alive::marked(MARK, "dropped"), [0_u32; 0]);
    }
}

#[watched_test]
fn a_slot_is_in_use_while_it_starts_a_command() {
    let slots = slots(1);
    let [slot] = &slots[..] else { return };
    let mut runner = Runner::new(1);
    runner.push((), held(slot, "in use", ["wait=600"]));
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    let refused = held(slot, "in use", ["out=x"]).capture().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::SlotInUse), "{refused}");
    drop(runner);
    assert_eq!(held(slot, "in use", ["out=x"]).read().unwrap(), "x");
}

#[watched_test]
fn a_slot_holds_one_command_at_a_time() {
    let Some(slot) = slot() else { return };
    let first = puppet(["wait=600"]).contain_in(&slot).spawn().unwrap();
    let error = puppet(["exit=0"]).contain_in(&slot.clone()).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::SlotInUse);
    assert!(error.to_string().ends_with("wait for its command, and drop its handle"), "{error}");
    first.kill().unwrap();
    first.wait().unwrap();
    let error = puppet(["exit=0"]).contain_in(&slot).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::SlotInUse, "it may have leftovers until the drop");
    drop(first);
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

/// The name of a setter, and a call of it.
type Setting = (&'static str, fn(&mut Command));

#[watched_test]
fn settings_that_contradict_a_slot_are_refused_by_name() {
    let Some(slot) = slot() else { return };
    let refused: [Setting; 3] = [
        ("contain", |command| _ = command.contain(Contain::Tree)),
        ("detached", |command| _ = command.detached()),
        ("foreground", |command| _ = command.own_group().foreground()),
    ];
    #[cfg(unix)]
    let unix: [Setting; 5] = [
        ("uid", |command| _ = command.uid(1)),
        ("gid", |command| _ = command.gid(1)),
        ("groups", |command| _ = command.groups(&[1])),
        ("chroot", |command| _ = command.chroot("/")),
        ("inherit_all", |command| _ = command.inherit_all()),
    ];
    #[cfg(not(unix))]
    let unix: [Setting; 0] = [];
    for (name, set) in refused.into_iter().chain(unix) {
        let mut command = puppet(["exit=0"]);
        set(command.contain_in(&slot));
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{name}: {error}");
        assert!(error.to_string().contains(&format!("`{name}`")), "{name}: {error}");
    }
    assert!(puppet(["exit=0"]).contain_in(&slot).start_and_forget().is_err());
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

// Alone: it writes programs and runs them. While another thread forks, they may be busy.
#[isolated_test]
fn errors_of_a_start_in_a_slot_are_those_of_any_start() {
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    #[cfg(unix)]
    for file in [&script, &dir.path().join("format")] {
        use std::os::unix::fs::PermissionsExt as _;
        if !file.exists() {
            std::fs::write(file, "no program").unwrap();
        }
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = |program: &std::path::Path| Command::new(program);
    let mut commands = vec![
        Command::new("no-such-program"),
        program(&dir.path().join("missing")),
        program(&text),
        program(dir.path()),
    ];
    #[cfg(unix)]
    {
        commands.push(program(&script));
        commands.push(program(&dir.path().join("format")));
        let mut large = puppet(["exit=0"]);
        large.args(std::iter::repeat_n("x".repeat(100 << 10), 80));
        commands.push(large);
        let mut larger = puppet(["exit=0"]);
        larger.args(std::iter::repeat_n("x".repeat(100 << 10), 300));
        commands.push(larger);
        let mut long = puppet(["exit=0"]);
        long.arg("x".repeat(200 << 10));
        commands.push(long);
        let mut nowhere = Command::new("no-such-program");
        nowhere.env("PATH", "/no/such:relative::/usr/bin");
        commands.push(nowhere);
    }
    for dir in [dir.path().join("missing"), text.clone()] {
        let mut command = puppet(["exit=0"]);
        command.current_dir(dir);
        commands.push(command);
    }
    let mut nul = puppet(["exit=0"]);
    nul.arg("a\0b");
    commands.push(nul);
    for mut command in commands {
        let plain = command.status().unwrap_err();
        let error = command.contain_in(&slot).status().unwrap_err();
        assert_eq!(error.to_string(), plain.to_string());
        assert_eq!(error.kind(), plain.kind(), "{error}");
        assert_eq!(error.raw_os_error(), plain.raw_os_error(), "{error}");
        assert_eq!(error.is_execution(), plain.is_execution(), "{error}");
    }
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

#[cfg(unix)]
#[watched_test]
fn a_command_in_a_slot_is_like_any_other() {
    let Some(slot) = slot() else { return };
    let same = |change: &dyn Fn(&mut Command), acts: &[&str]| {
        let mut command = puppet(acts);
        change(&mut command);
        let plain = command.contain(Contain::Tree).read().unwrap();
        let mut command = puppet(acts);
        change(&mut command);
        assert_eq!(command.contain_in(&slot).read().unwrap(), plain, "{acts:?}");
    };
    same(&|_| (), &["handles"]);
    for field in ["SigBlk", "SigIgn", "SigCgt", "NSsid", "NSpgid", "Groups", "Umask", "Uid"] {
        if field != "NSpgid" {
            same(&|_| (), &[&format!("status={field}")]);
        }
        same(&|command| _ = command.umask(0o27).nice(3), &[&format!("status={field}")]);
    }
    same(&|command| _ = command.default_signal(pipewright::Signal::HUP), &["status=SigIgn"]);
    same(&|_| (), &["limits", "cwd", "env-all"]);
    let limit = |command: &mut Command| {
        command.rlimit(pipewright::Resource::OpenFiles, Some(99), Some(200));
        command.rlimit(pipewright::Resource::CoreDump, Some(0), None);
    };
    let mut refused = puppet(["exit=0"]);
    limit(&mut refused);
    let plain = refused.status().map_err(|error| error.to_string());
    let error = refused.contain_in(&slot).status().map_err(|error| error.to_string());
    assert_eq!(error, plain);
    same(
        &|command| {
            command.rlimit(pipewright::Resource::OpenFiles, Some(99), Some(200));
        },
        &["limits"],
    );
    same(&|command| _ = command.current_dir("/usr"), &["cwd"]);
    same(&|command| _ = command.env_clear().env("A", "1"), &["env-all"]);
    same(&|command| _ = command.arg0("other"), &["args"]);
    let grouped = puppet(["status=NSpgid"]).own_group().contain_in(&slot).capture().unwrap();
    assert!(grouped.stdout.ends_with(&grouped.pid.to_string()), "{grouped:?}");
    let sessioned = puppet(["status=NSsid"]).own_session().contain_in(&slot).capture().unwrap();
    assert!(sessioned.stdout.ends_with(&sessioned.pid.to_string()), "{sessioned:?}");
}

#[cfg(unix)]
#[watched_test]
fn arguments_and_environments_may_be_large() {
    let Some(slot) = slot() else { return };
    let sum = |command: &mut Command| {
        let output = command.contain_in(&slot).capture().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    for _ in 0..3 {
        let mut args = Command::new("sh");
        args.args(["-c", "printf '%s\\n' $# ${#1} ${#12}", "sh"]);
        args.args(std::iter::repeat_n("x".repeat(90_000), 12));
        assert_eq!(sum(&mut args), "12\n90000\n90000\n", "more than 1 MiB");
        let mut variables = Command::new("sh");
        variables.args(["-c", "env | grep -c ^PIPEWRIGHT_V"]);
        variables.envs((0..3000).map(|number| (format!("PIPEWRIGHT_V{number}"), "value")));
        assert_eq!(sum(&mut variables), "3000\n");
        assert_eq!(sum(&mut puppet(["out=x"])), "x");
    }
}

#[cfg(target_os = "linux")]
#[watched_test]
fn handles_are_inherited_by_number_even_if_the_numbers_collide() {
    use std::os::fd::AsRawFd as _;
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..6)
        .map(|index| {
            let path = dir.path().join(index.to_string());
            std::fs::write(&path, index.to_string()).unwrap();
            std::fs::File::open(path).unwrap()
        })
        .collect();
    // The numbers that the supervisor uses itself, and those under which it receives the handles.
    for first in [3, 5, 8, 9, 11] {
        let mut command = Command::new("sh");
        let reads: String =
            (first..first + 6).map(|fd| format!("cat /proc/self/fd/{fd};")).collect();
        command.args(["-c", &format!("{reads} ls -1 /proc/self/fd | wc -l")]);
        for (index, file) in files.iter().enumerate() {
            command.inherit_fd_as(file.try_clone().unwrap(), first + index as i32);
        }
        let capture = command.contain_in(&slot).capture().unwrap();
        // Stdio, the six, and the directory that `ls` reads.
        assert_eq!(capture.stdout.trim_end(), "01234510", "{first}: {capture:?}");
    }
    let mut command = puppet(["handles"]);
    let number = files[0].as_raw_fd();
    command.inherit(files[0].try_clone().unwrap());
    assert!(number > 2);
    let plain = command.read().unwrap();
    assert_eq!(command.contain_in(&slot).read().unwrap(), plain);
}

#[cfg(unix)]
#[isolated_test]
fn the_working_directory_is_the_one_at_the_start_of_the_command() {
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    std::fs::create_dir(dir.join("below")).unwrap();
    std::fs::copy(TRUE, dir.join("program")).unwrap();
    for _ in 0..2 {
        std::env::set_current_dir(&dir).unwrap();
        let cwd = |command: &mut Command| command.contain_in(&slot).read().unwrap();
        assert_eq!(cwd(&mut puppet(["cwd"])), dir.display().to_string());
        let below = cwd(puppet(["cwd"]).current_dir("below"));
        assert_eq!(below, dir.join("below").display().to_string());
        assert!(Command::new("./program").contain_in(&slot).status().unwrap().success());
        std::env::set_current_dir("/usr").unwrap();
        assert_eq!(cwd(&mut puppet(["cwd"])), "/usr");
        let error = Command::new("./program").contain_in(&slot).status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotFound { searched: Vec::new() });
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_start_without_room_for_handles_leaves_no_command_running() {
    let Some(slot) = slot() else { return };
    puppet(["exit=0"]).contain_in(&slot).status().unwrap();
    let open = count::handles_at_rest();
    let (mut failed, mut started) = (0, 0);
    for room in 0..12 {
        let held = trees_hostile::leave(room);
        let child = puppet(["wait=600"]).contain_in(&slot).spawn();
        let result = child.as_ref().map(drop).map_err(|error| error.kind().clone());
        drop(held);
        match result {
            Ok(()) => started += 1,
            Err(ErrorKind::Limit { .. }) => {
                failed += 1;
                let below = alive_below_the_slot();
                assert!(below.is_empty(), "{room}: {below:?}");
            }
            Err(kind) => panic!("{room}: {kind:?}"),
        }
        drop(child);
        assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success(), "{room}");
    }
    assert!(failed >= 1 && started >= 1, "{failed} {started}");
    assert_eq!(count::handles_at_rest(), open);
}

/// Returns the processes below this one that are no supervisors.
#[cfg(target_os = "linux")]
fn alive_below_the_slot() -> Vec<u32> {
    let supervisors = pipewright_tests::alive::supervisors(std::process::id());
    let mut found = Vec::new();
    for supervisor in &supervisors {
        let list = format!("/proc/{supervisor}/task/{supervisor}/children");
        let list = std::fs::read_to_string(list).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found.retain(|pid| !supervisors.contains(pid));
    found
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_host_without_stdio_can_use_a_slot() {
    let Some(slot) = slot() else { return };
    let listed = |command: &mut Command| command.stdout(pipewright::Stdio::piped()).output();
    // Above the three, or the copies would take their numbers.
    // SAFETY: numbers.
    let kept = [0, 1, 2].map(|fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) });
    for fd in 0..3 {
        // SAFETY: std's handles on them only ever fail from now on; this process runs nothing but this test.
        unsafe { libc::close(fd) };
    }
    // Nothing can be printed before they are restored, so a panic must come later.
    // A shell would use the free numbers itself.
    let mut command = Command::new("ls");
    command.args(["-1", "/proc/self/fd"]).stdin(pipewright::Stdio::inherit());
    command.stderr(pipewright::Stdio::inherit());
    let plain = listed(&mut command).map(|output| output.stdout);
    let in_slot = listed(command.contain_in(&slot)).map(|output| output.stdout);
    for (number, fd) in (0..3).zip(kept) {
        // SAFETY: numbers; the copies above.
        unsafe { libc::dup2(fd, number) };
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(in_slot.unwrap()), text(plain.unwrap()));
}
