//! Limits on a whole tree: they hold, or are refused, and the result says what was used; also in a slot.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pipewright::{
    Capture, Command, Contain, Containment, ErrorKind, LimitKind, LimitMechanism, Limits,
    MemoryLimit, Outcome, Scope, Stdio, TreeSlot,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, counted, is_root, skipped};
use pipewright_tests::{alive, count, mounts, pace, watchdog};
use rustix::mount::{MountFlags, mount_remount};

use crate::tree_slot::has_no_slots;
use crate::{cannot_supervise, puppet, with_time};

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
    let mut command = shell(r#""$PUPPET" allocate=100; echo killed; exec "$PUPPET" wait=600"#);
    command.limits(memory(SMALL));
    let capture = with_time(pace::millis(1500), |time| {
        let capture = command.timeout(time).capture().unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
        Some(capture).filter(|capture| capture.stdout == "killed\n")
    });
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

const LARGE: u64 = 256 << 20;

/// Returns a slot, or `None` and the report of it if it cannot have commands with these limits here.
fn slot_for(limits: Limits) -> Option<TreeSlot> {
    if has_no_slots() || cannot_supervise() || cannot_limit(limits) {
        return None;
    }
    Some(TreeSlot::new().unwrap())
}

fn run_in(slot: &TreeSlot, limits: Limits, acts: &[&str]) -> Capture {
    puppet(acts).contain_in(slot).limits(limits).stderr(Stdio::null()).capture().unwrap()
}

/// Returns the cgroups that a command of the slot is in.
fn groups_in(slot: &TreeSlot, limits: Option<Limits>) -> String {
    let mut command = Command::new("cat");
    command.arg("/proc/self/cgroup").contain_in(slot);
    if let Some(limits) = limits {
        command.limits(limits);
    }
    command.capture().unwrap().stdout
}

#[watched_test]
fn a_slot_holds_the_limits_of_each_command() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    for round in 0..3 {
        let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
        let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{round}: {capture:?}") };
        assert_eq!((oom.limit, oom.killed), (MemoryLimit::OfCommand(SMALL), 1));
        // The last kill is not one of the next command.
        let capture = run_in(&slot, memory(SMALL), &["exit=3"]);
        assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
        assert_eq!(capture.out_of_memory, None);
        let held = capture.limits.unwrap();
        assert_eq!((held.limits, held.missing.len()), (memory(SMALL), 0));
    }
}

#[watched_test]
fn the_groups_of_a_slot_are_used_again() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let first = groups_in(&slot, Some(memory(SMALL)));
    assert_ne!(first, own);
    for _ in 0..3 {
        assert_eq!(groups_in(&slot, Some(memory(SMALL))), first);
    }
    assert_eq!(groups_in(&slot, None), own, "a command without limits");
    assert_eq!(groups_in(&slot, Some(memory(SMALL))), first);
}

#[watched_test]
fn the_figures_of_a_command_are_its_own() {
    let limits = memory(LARGE).pids_max(50);
    let Some(slot) = slot_for(limits) else { return };
    let large = run_in(&slot, limits, &["allocate=64", "burn=60", "spawn=wait=0"]);
    let large = large.tree_usage.unwrap();
    let small = run_in(&slot, limits, &["exit=0"]);
    assert_eq!((small.outcome, small.out_of_memory), (Outcome::Exited, None));
    let small = small.tree_usage.unwrap();
    if let (Some(large), Some(small)) = (large.peak_memory_bytes, small.peak_memory_bytes) {
        assert!(large >= 64 << 20 && small < 32 << 20, "{large} and {small}");
    }
    if let (Some(large), Some(small)) = (large.peak_pids, small.peak_pids) {
        assert!(large >= 2 && small == 1, "{large} and {small}");
    }
    if let (Some(large), Some(small)) = (large.user, small.user) {
        assert!(large > small, "{large:?} and {small:?}");
    }
}

#[watched_test]
fn the_next_command_may_have_other_limits() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    for _ in 0..2 {
        assert_eq!(run_in(&slot, memory(LARGE), &["allocate=100"]).outcome, Outcome::Exited);
        let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
        assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
        let measured = run_in(&slot, Limits::new(), &["allocate=100"]);
        assert_eq!(measured.outcome, Outcome::Exited);
    }
}

/// Returns a command that sets the shell's variables `v1` and `v2` to its groups, and then runs the script. Root may
/// write to their files.
fn script_in(slot: &TreeSlot, limits: Limits, script: &str) -> Command {
    const GROUPS: &str = "mount() { grep -- \"$1\" /proc/self/mountinfo | cut -d' ' -f5 | head -n 1; }; \
        v2=$(mount '- cgroup2 ')$(sed -n 's/^0:://p' /proc/self/cgroup); \
        v1=$(mount '- cgroup .*memory')$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup); ";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{GROUPS}{script}")]).contain_in(slot).limits(limits);
    command.stderr(Stdio::null());
    command
}

#[watched_test]
fn a_limit_that_a_command_has_changed_holds_for_the_next_one() {
    let Some(slot) = slot_for(memory(SMALL)) else { return };
    // The last one lets a process wait that would be killed.
    let script = "{ echo max > $v2/memory.max && echo changed; } || \
        { echo -1 > $v1/memory.memsw.limit_in_bytes; echo -1 > $v1/memory.limit_in_bytes && \
        echo 1 > $v1/memory.oom_control && echo changed; }";
    if script_in(&slot, memory(SMALL), script).capture().unwrap().stdout != "changed\n" {
        return skipped(Need::Root, "a command cannot change its limit here");
    }
    let capture = run_in(&slot, memory(SMALL), &["allocate=100"]);
    assert!(matches!(capture.outcome, Outcome::OutOfMemory(_)), "{capture:?}");
}

#[watched_test]
fn a_command_that_freezes_its_cgroup_stops_no_other_one() {
    for limits in [memory(SMALL), Limits::new()] {
        let Some(slot) = slot_for(limits) else { return };
        let mut freezes = script_in(&slot, limits, "echo 1 > $v2/cgroup.freeze || exit 7");
        let capture = freezes.timeout(Duration::from_secs(2)).capture().unwrap();
        if capture.status.code() == Some(7) {
            return skipped(Need::CgroupV2, "a command cannot freeze its cgroup here");
        }
        assert_eq!(capture.outcome, Outcome::TimedOut, "{capture:?}");
        assert_eq!(run_in(&slot, limits, &["exit=3"]).status.code(), Some(3));
    }
}

/// As a service manager does, or another process that takes an empty group for one that was left behind.
#[watched_test]
fn groups_that_something_else_has_removed_are_made_again() {
    for limits in [memory(SMALL), Limits::new()] {
        let Some(slot) = slot_for(limits) else { return };
        let groups = groups_in(&slot, Some(limits));
        // The whole name: that of a group of another test may be its begin, or in its path.
        let names: Vec<_> = groups.lines().filter_map(|line| line.rsplit('/').next()).collect();
        let is_own = |group: &PathBuf| {
            group.file_name().is_some_and(|name| names.iter().any(|own| name == *own))
        };
        for group in alive::cgroups_made_by(std::process::id()).into_iter().filter(is_own) {
            std::fs::remove_dir(group).unwrap();
        }
        assert_eq!(run_in(&slot, limits, &["exit=3"]).status.code(), Some(3));
    }
}

#[isolated_test]
fn the_groups_of_a_slot_are_removed_with_it() {
    let limits = memory(SMALL).pids_max(50);
    if slot_for(limits).is_none() {
        return;
    }
    let run = |round: usize| {
        let slot = TreeSlot::new().unwrap();
        let acts: &[&str] = match round % 4 {
            0 => &["out=x"],
            1 => &["daemon=600", "exit=1"],
            2 => &["allocate=100"],
            _ => &["spawn=wait=0"],
        };
        for _ in 0..2 {
            run_in(&slot, limits, acts);
        }
        let error = Command::new("no-such-program").contain_in(&slot).limits(limits).status();
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::NotFound { .. }));
    };
    // The first rounds start threads and open files that stay.
    (0..4).for_each(run);
    watchdog::until("the first are reaped", || count::children().is_empty());
    let before = count::handles();
    (0..16).for_each(run);
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before);
    let left = alive::cgroups_made_by(std::process::id());
    assert!(left.is_empty(), "{left:?}");
}

/// A user with no rights.
const NOBODY: u32 = 65534;

/// Gives up the rights of root, and with them every cgroup that belongs to root.
fn become_nobody() -> bool {
    if !is_root() {
        return true;
    }
    let nobody = rustix::process::Uid::from_raw(NOBODY);
    rustix::thread::set_thread_groups(&[]).is_ok()
        && rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok()
}

#[isolated_test]
fn an_ordinary_user_is_told_why_and_what_would_help() {
    if !become_nobody() {
        return skipped(Need::Root, "this process cannot give up its rights");
    }
    let error = match Command::new("true").limits(memory(32 << 20)).capture() {
        Ok(_) => return skipped(Need::UserWithoutCgroup, "an ordinary user has a cgroup here"),
        Err(error) => error,
    };
    let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
    assert_eq!(limit.limit, LimitKind::Memory);
    assert!(!limit.reason.is_empty());
    if error.to_string().contains("no memory controller is mounted") {
        return skipped(
            Need::TreeLimits,
            "no memory controller is mounted, and nothing would help",
        );
    }
    assert!(limit.remedy.is_some(), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert!(error.to_string().contains("memory_max cannot be held: "), "{error}");
    assert!(error.to_string().contains("; try: "), "{error}");
    assert!(error.is_start());

    let limits = memory(32 << 20).cpu_max(1.0).pids_max(50).best_effort();
    match Command::new("true").limits(limits).capture() {
        Ok(capture) => {
            assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(0)));
            let held = capture.limits.unwrap();
            let missing: Vec<_> = held.missing.iter().map(|missing| missing.limit).collect();
            let all = [LimitKind::Swap, LimitKind::Cpu, LimitKind::Pids];
            assert!(all.iter().all(|kind| missing.contains(kind)), "{missing:?}");
            // The memory is looked after without the kernel, and the result says so.
            assert_eq!(held.mechanism, Some(LimitMechanism::Sampled));
            assert_eq!(held.sampled.map(|sampled| sampled.limit), Some(LimitKind::Memory));
            assert_eq!(held.limits.kinds().collect::<Vec<_>>(), [LimitKind::Memory]);
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Unsupported), "{error}"),
    }
}

/// A container has its cgroups, and cannot write to them.
#[isolated_test]
fn a_read_only_cgroup_is_an_error_that_says_so() {
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    let mounted = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = mounted.lines().filter(|line| line.contains(" - cgroup"));
    for place in places.filter_map(|line| line.split(' ').nth(4)) {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        if let Err(error) = mount_remount(place, flags, c"") {
            return skipped(Need::Mount, error);
        }
    }
    let error = Command::new("true").limits(memory(32 << 20)).capture().unwrap_err();
    let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
    if error.to_string().contains("no memory controller is mounted") {
        return skipped(
            Need::TreeLimits,
            "no memory controller is mounted, and nothing would help",
        );
    }
    assert_eq!(limit.limit, LimitKind::Memory);
    assert!(limit.reason.ends_with(" is mounted read-only"), "{error}");
    assert!(limit.remedy.as_ref().is_some_and(|it| it.contains("container")), "{error}");
    // Without the kernel, if that is allowed.
    let limits = memory(1 << 30).best_effort();
    match Command::new("true").limits(limits).capture() {
        Ok(capture) => {
            assert_eq!(capture.limits.unwrap().mechanism, Some(LimitMechanism::Sampled));
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Unsupported), "{error}"),
    }
}

#[isolated_test]
fn memory_is_looked_after_without_the_kernel_if_that_is_allowed() {
    const BYTES: u64 = 32 << 20;
    if !become_nobody() {
        return skipped(Need::Root, "this process cannot give up its rights");
    }
    let limits = Limits::new().memory_max(BYTES);
    match Command::new("true").limits(limits).contain(Contain::Tree).capture() {
        Ok(_) => return skipped(Need::UserWithoutCgroup, "an ordinary user has a cgroup here"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::LimitUnavailable { .. }), "{error}")
        }
    }
    // Reads a line without an end, slowly, and keeps all of it.
    let hungry =
        "i=0; while [ $i -lt 400 ]; do head -c 1M /dev/zero; sleep 0.01; i=$((i+1)); done | tail";
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).limits(limits.best_effort()).kill_on_parent_exit(Scope::Tree);
        command.capture()
    };
    let capture = match run(hungry) {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
            return skipped(Need::Supervisor, error);
        }
        capture => capture.unwrap(),
    };
    let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
    assert_eq!(oom.limit, MemoryLimit::OfCommand(BYTES));
    assert!(oom.peak_bytes > Some(BYTES), "{oom:?}");
    assert_eq!(capture.limits.unwrap().mechanism, Some(LimitMechanism::Sampled));
    let capture = run("exit 3").unwrap();
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
}

#[watched_test]
fn a_value_that_cannot_be_meant_is_refused() {
    let none = Limits::new();
    for limits in [none.pids_max(0), none.cpu_max(0.0), none.cpu_max(f64::NAN), none.oom_group()] {
        let error = puppet(["exit=0"]).limits(limits).status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{limits:?}");
    }
}

/// Kills for lack of memory, told from other kills. `PIPEWRIGHT_TEST_KILLS=1000` makes 1,000 of each.
#[cfg(target_os = "linux")]
mod kills {
    use std::path::Path;

    use pipewright::{Command, Limits, MemoryLimit, Outcome, Signal, Stdio};
    use pipewright_test_macros::watched_test;
    use pipewright_tests::skip::{Need, counted, skipped};
    use pipewright_tests::{pace, watchdog};

    use super::super::puppet;
    use super::{SMALL, cannot_limit, memory};

    /// Returns the number of kills of each sort.
    fn rounds() -> usize {
        let asked = std::env::var("PIPEWRIGHT_TEST_KILLS").ok();
        asked.and_then(|text| text.parse().ok()).unwrap_or(12)
    }

    /// Starts a tree that something else kills: the command, a descendant, or both.
    fn kill_otherwise(round: usize) -> Outcome {
        let mut command = Command::new("sh");
        let script = match round % 3 {
            0 => "kill -KILL $$",
            1 => "sleep 600 & kill -KILL $!; wait",
            _ => "sleep 600 & kill -KILL $! $$",
        };
        command.args(["-c", script]).limits(memory(SMALL)).stderr(Stdio::null());
        command.capture().unwrap().outcome
    }

    #[watched_test(limit = pace::seconds(600))]
    fn every_kill_is_attributed() {
        if cannot_limit(memory(SMALL)) {
            return;
        }
        let (mut named, rounds) = (0, rounds());
        for round in 0..rounds {
            let mut command = match round % 2 {
                0 => puppet(["allocate=100"]),
                _ => puppet(["spawn-and-reap=allocate=100", "exit=0"]),
            };
            let capture = command.limits(memory(SMALL)).stderr(Stdio::null()).capture().unwrap();
            let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{round}: {capture:?}") };
            assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL), "{round}: {capture:?}");
            named += usize::from(oom.victim.is_some_and(|victim| victim.name() == "puppet"));
            let other = kill_otherwise(round);
            assert!(matches!(other, Outcome::Signaled | Outcome::Exited), "{round}: {other:?}");
        }
        counted(&format!(
            "{rounds} kills for lack of memory, {named} with a victim; {rounds} others"
        ));
    }

    /// For a machine that a test may fill: `ci/kernels.sh` says so of its own.
    #[watched_test]
    fn a_lack_of_memory_of_the_machine_is_told_from_a_limit() {
        if std::env::var_os("PIPEWRIGHT_TEST_FILL_MEMORY").is_none() {
            return skipped(
                Need::SpareMemory,
                "the memory of this machine is not for tests: PIPEWRIGHT_TEST_FILL_MEMORY",
            );
        }
        if cannot_limit(memory(SMALL)) {
            return;
        }
        // More than the machine has. The kernel chooses a process that asks for it before all others.
        let script = "echo 1000 > /proc/self/oom_score_adj; exec \"$PUPPET\" allocate=1000000";
        for limits in [Limits::new().pids_max(50), Limits::new().memory_max(1 << 40)] {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("PUPPET", env!("CARGO_BIN_EXE_puppet"));
            let capture = command.limits(limits).stderr(Stdio::null()).capture().unwrap();
            let Outcome::OutOfMemory(oom) = capture.outcome else { panic!("{capture:?}") };
            assert_eq!((oom.limit, oom.killed), (MemoryLimit::Machine, 1), "{capture:?}");
            let outcome = command.limits(memory(SMALL)).capture().unwrap().outcome;
            let Outcome::OutOfMemory(oom) = outcome else { panic!("{outcome:?}") };
            assert_eq!(oom.limit, MemoryLimit::OfCommand(SMALL));
        }
    }

    #[watched_test]
    fn a_kill_from_outside_is_not_out_of_memory() {
        if cannot_limit(memory(SMALL)) {
            return;
        }
        // Full of cached data or not, and close to its limit or not.
        for acts in [vec!["wait=600"], vec!["allocate=14", "wait=600"]] {
            let mut lines = puppet(&acts).limits(memory(SMALL)).lines().unwrap();
            let pid = lines.pid();
            watchdog::until("it runs", || Path::new(&format!("/proc/{pid}")).exists());
            pipewright::ProcessHandle::open(pid).unwrap().signal(Signal::KILL).unwrap();
            while lines.next().is_some() {}
            let end = lines.finish().unwrap();
            assert_eq!(end.outcome, Outcome::Signaled, "{end:?}");
        }
    }
}
