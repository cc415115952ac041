//! Limits on a whole tree: they hold, and the result says what was used.

use std::time::{Duration, Instant};

use pipewright::{
    Command, Contain, Containment, ErrorKind, LimitKind, Limits, MemoryLimit, Outcome, Scope, Stdio,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, counted, skipped};
use pipewright_tests::{count, pace, watchdog};

use super::puppet;

/// More than the puppet needs to start.
pub(super) const SMALL: u64 = 24 << 20;

/// Returns limits on the memory, without swap.
pub(super) fn memory(bytes: u64) -> Limits {
    Limits::new().memory_max(bytes).memory_swap_max(0)
}

/// Returns true, and reports it, if this machine cannot hold the limits.
pub(super) fn cannot_limit(limits: Limits) -> bool {
    match puppet(["exit=0"]).limits(limits).capture() {
        Ok(capture) => {
            let held = capture.limits.expect("limits were asked for");
            assert_eq!((held.limits, held.missing.len()), (limits, 0));
            false
        }
        Err(error) => {
            let is_about_limits = matches!(error.kind(), ErrorKind::LimitUnavailable { .. })
                || matches!(error.kind(), ErrorKind::Unsupported);
            assert!(is_about_limits, "{error}");
            let is_of_v2 = matches!(error.kind(),
                ErrorKind::LimitUnavailable { limit } if limit.limit == LimitKind::OomGroup);
            skipped(if is_of_v2 { Need::CgroupV2 } else { Need::TreeLimits }, error);
            true
        }
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("PUPPET", env!("CARGO_BIN_EXE_puppet"));
    command
}

#[watched_test]
fn a_command_over_its_memory_limit_is_out_of_memory() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    let mut command = puppet(["allocate=100"]);
    let capture = command.limits(memory(SMALL)).capture().unwrap();
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL));
    assert_eq!(capture.out_of_memory, Some(oom));
    assert!(capture.status.was_killed(), "{capture:?}");
    assert!(!capture.success());
    assert_eq!(oom.killed, 1);
    if let Some(peak) = oom.peak_bytes {
        assert!((SMALL / 2..=SMALL).contains(&peak), "{peak}");
    }
    if let Some(victim) = oom.victim {
        assert_eq!(victim.name(), "puppet");
    }
    let error = command.run().unwrap_err();
    assert!(error.to_string().contains("was killed: over its memory limit of 24 MiB"), "{error}");
}

#[watched_test]
fn a_killed_grandchild_is_reported_though_the_command_exits_with_0() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    for scope in [None, Some(Scope::Tree)] {
        let mut command = shell(r#""$PUPPET" allocate=100; exit 0"#);
        command.limits(memory(SMALL)).stderr(Stdio::null());
        if let Some(scope) = scope {
            command.kill_on_parent_exit(scope);
        }
        let capture = command.capture().unwrap();
        assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
        assert_eq!(capture.status.code(), Some(0));
        assert!(!capture.success());
        assert!(capture.check().is_err());
    }
}

#[watched_test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let limits = memory(64 << 20).cpu_max(2.0).pids_max(100);
    if cannot_limit(limits) {
        return;
    }
    let capture = puppet(["allocate=8", "exit=3"]).limits(limits).capture().unwrap();
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
    assert_eq!((capture.stdout.as_str(), capture.out_of_memory), ("allocated\n", None));
    let held = capture.limits.unwrap();
    assert_eq!(held.limits.kinds().count(), 4);
    assert!(held.mechanism.is_some() && held.missing.is_empty());
}

#[watched_test]
fn the_whole_tree_is_measured() {
    if cannot_limit(Limits::new().pids_max(100)) {
        return;
    }
    let limits = Limits::new().pids_max(100).memory_max(256 << 20).best_effort();
    let script = r#""$PUPPET" burn=60 & "$PUPPET" burn=60 allocate=16 & wait"#;
    let capture = shell(script).limits(limits).capture().unwrap();
    let tree = capture.tree_usage.expect("it has limits");
    if let (Some(user), Some(system)) = (tree.user, tree.system) {
        assert!(user + system >= Duration::from_millis(110), "{tree:?}");
    }
    if let Some(pids) = tree.peak_pids {
        assert!(pids >= 2, "{tree:?}");
    }
    if let Some(peak) = tree.peak_memory_bytes {
        assert!(peak >= 16 << 20, "{tree:?}");
    }
    assert!(tree.user.or(tree.cpu_stall).is_some() || capture.containment != Containment::Cgroup);
}

#[watched_test]
fn a_fork_bomb_stays_within_pids_max() {
    let limits = Limits::new().pids_max(20);
    if cannot_limit(limits) {
        return;
    }
    let capture = shell("bomb() { bomb | bomb & }; bomb; sleep 0.3")
        .limits(limits)
        .stderr(Stdio::null())
        .timeout(pace::millis(2000))
        .capture()
        .unwrap();
    if let Some(most) = capture.tree_usage.and_then(|usage| usage.peak_pids) {
        assert!((2..=20).contains(&most), "{most}");
    }
    assert_eq!(capture.out_of_memory, None);
}

#[watched_test]
fn cpu_max_slows_the_tree_down() {
    let limits = Limits::new().cpu_max(0.25);
    if cannot_limit(limits) {
        return;
    }
    let start = Instant::now();
    let script = r#""$PUPPET" burn=100 & "$PUPPET" burn=100 & wait"#;
    assert!(shell(script).limits(limits).status().unwrap().success());
    // 200 ms of CPU time; the first period of 100 ms has 25 ms at once.
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
}

#[watched_test]
fn a_limit_below_the_need_of_a_start_is_an_error_or_out_of_memory() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    for bytes in [4096, 64 << 10, 256 << 10] {
        for scope in [None, Some(Scope::Tree)] {
            let mut command = puppet(["allocate=4"]);
            command.limits(memory(bytes));
            if let Some(scope) = scope {
                command.kill_on_parent_exit(scope);
            }
            match command.capture() {
                Ok(capture) => {
                    assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}"),
            }
        }
    }
}

#[watched_test]
fn the_whole_tree_is_killed_with_oom_group() {
    let limits = memory(SMALL).oom_group();
    if cannot_limit(limits) {
        return;
    }
    let capture = shell(r#""$PUPPET" wait=600 & "$PUPPET" allocate=100; echo continued"#)
        .limits(limits)
        .capture()
        .unwrap();
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    assert!(capture.status.was_killed() && capture.stdout.is_empty(), "{capture:?}");
    assert!(oom.killed >= 2, "{oom:?}");
}

#[watched_test]
fn a_stop_is_told_from_a_kill_for_lack_of_memory() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    let capture =
        puppet(["wait=600"]).limits(memory(SMALL)).timeout(pace::millis(100)).capture().unwrap();
    assert_eq!((capture.outcome, capture.out_of_memory), (Outcome::TimedOut, None));
    // A kill in the tree stays known if the run was stopped for another reason later.
    let capture = shell(r#""$PUPPET" allocate=100; exec "$PUPPET" wait=600"#)
        .limits(memory(SMALL))
        .timeout(pace::millis(1500))
        .capture()
        .unwrap();
    assert_eq!(capture.outcome, Outcome::TimedOut);
    assert!(capture.out_of_memory.is_some(), "{capture:?}");
}

#[watched_test]
fn limits_do_not_fit_a_slot_or_a_replaced_process() {
    let limits = Limits::new().memory_max(0);
    let error = puppet(["exit=0"]).limits(limits).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert!(error.to_string().contains("memory_max is 0"), "{error}");
    let error = puppet(["exit=0"]).limits(memory(SMALL)).exec();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert_eq!(LimitKind::Memory.name(), "memory_max");
}

#[isolated_test]
fn limited_trees_leave_nothing_behind() {
    if cannot_limit(memory(SMALL).pids_max(50)) {
        return;
    }
    let run = |round: usize| {
        let mut command = match round % 4 {
            0 => puppet(["out=x"]),
            1 => puppet(["daemon=600", "exit=1"]),
            2 => Command::new("no-such-program"),
            _ => puppet(["allocate=100"]),
        };
        command.limits(memory(SMALL).pids_max(50));
        if round % 8 >= 4 {
            command.kill_on_parent_exit(Scope::Tree);
        }
        // The one that is not found is an error.
        let _ = command.capture();
    };
    (0..8).for_each(run);
    watchdog::until("the first are reaped", || count::children().is_empty());
    let before = count::handles();
    (0..pace::rounds(48, 16)).for_each(run);
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before);
    let own = format!("pipewright-{}-", std::process::id());
    assert!(!directories("/sys/fs/cgroup".as_ref()).iter().any(|it| it.starts_with(&own)));
}

/// Prints the cost of a start with limits beside that of one that is only contained, alone and in a slot: medians and
/// quartiles of starts that take turns, and of the differences between neighbours.
#[watched_test]
#[ignore = "a measurement"]
fn measure_a_start_with_limits() {
    const ROUNDS: usize = 400;
    let all = memory(SMALL).cpu_max(2.0).pids_max(50);
    if cannot_limit(all) {
        return;
    }
    let kinds = [
        ("contained", None),
        ("measured", Some(Limits::new())),
        ("memory and swap", Some(memory(SMALL))),
        ("all limits", Some(all)),
    ];
    for in_slots in [false, true] {
        let slots = kinds.map(|_| in_slots.then(|| pipewright::TreeSlot::new().unwrap()));
        let mut times = kinds.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (index, (_, limits)) in kinds.iter().enumerate() {
                let mut command = Command::new("/bin/true");
                match &slots[index] {
                    Some(slot) => command.contain_in(slot),
                    None if limits.is_none() => command.contain(Contain::Tree),
                    None => &mut command,
                };
                if let Some(limits) = limits {
                    command.limits(*limits);
                }
                let start = Instant::now();
                command.capture().unwrap();
                times[index].push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        for ((name, _), own) in kinds.iter().zip(&times) {
            let differences = own.iter().zip(&times[0]).map(|(own, first)| own - first).collect();
            counted(&format!(
                "{name}{}: {} us, {} us more than contained",
                if in_slots { ", in a slot" } else { "" },
                quartiles(own.clone()),
                quartiles(differences)
            ));
        }
    }
}

/// Returns the median, and the quartiles in parentheses.
fn quartiles(mut values: Vec<f64>) -> String {
    values.sort_unstable_by(f64::total_cmp);
    let at = |quarter: usize| values[values.len() * quarter / 4];
    format!("{:.0} ({:.0}..{:.0})", at(2), at(1), at(3))
}

/// Returns the names of all directories below one.
pub(super) fn directories(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name().to_string_lossy().into_owned());
            names.extend(directories(&entry.path()));
        }
    }
    names
}

#[watched_test]
fn a_child_that_is_held_tells_its_limits_and_a_kill_while_it_runs() {
    if cannot_limit(memory(SMALL)) {
        return;
    }
    let mut command = shell(r#""$PUPPET" allocate=100; echo killed; read line; exit 3"#);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.limits(memory(SMALL)).spawn().unwrap();
    assert_eq!(child.limits().unwrap().limits, memory(SMALL));
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(line, "killed\n");
    let oom = child.out_of_memory().unwrap();
    assert_eq!((oom.limit, oom.killed), (MemoryLimit::OfCommand(SMALL), 1));
    assert_eq!(child.try_wait().unwrap(), None);
    if let Some(peak) = child.tree_usage().unwrap().peak_memory_bytes {
        assert!((SMALL / 2..=SMALL).contains(&peak), "{peak}");
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    // Also after its end.
    assert_eq!(child.out_of_memory(), Some(oom));
    let other = puppet(["exit=0"]).spawn().unwrap();
    assert_eq!((other.limits(), other.out_of_memory()), (None, None));
}
