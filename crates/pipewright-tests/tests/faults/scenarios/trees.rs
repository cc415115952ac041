//! Trees: contained, limited, ended with this process, and one after the other in a slot.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pipewright::{Command, Contain, Limits, Runner, Scope, Stdio, TreeSlot};

use super::commands::{in_a_task, whole};
use super::{Scenario, passes};
use crate::scene::{Fault, Pass, Scene, Seen, expect, pause};

pub(super) fn all() -> Vec<Scenario> {
    let mut all = passes![
        tree,
        tree_leftovers,
        tree_limits,
        tree_best_effort,
        group,
        parent_exit,
        parent_exit_wait,
        parent_exit_child,
        runner_of_trees,
        tree_kill_on_drop,
        tree_task,
    ];
    all.extend([
        Scenario::new("slot", slot),
        Scenario::new("slot_again", slot).warm(),
        Scenario::new("slot_runner", slot_runner),
        Scenario::new("tree_again", |_| Ok(Box::new(tree))).warm(),
    ]);
    all
}

/// Checks that no process of that number runs, or is about to end.
pub(super) fn gone(pid: u32) -> Result<(), Fault> {
    let until = Instant::now() + pipewright_tests::pace::seconds(5);
    loop {
        let stat = pause(|| fs::read_to_string(format!("/proc/{pid}/stat"))).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if stat.is_empty() || state == Some('Z') {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Fault::Untrue("a process that is said to be gone still runs".to_owned()));
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Waits for numbers that a script writes to a file.
pub(super) fn pids_in(path: &Path, count: usize) -> Vec<u32> {
    let until = Instant::now() + pipewright_tests::pace::seconds(5);
    loop {
        let text = pause(|| fs::read_to_string(path)).unwrap_or_default();
        let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        if pids.len() >= count || Instant::now() >= until {
            return pids;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

const SHORT: &str = "echo out; echo err >&2; exit 7";

fn run(scene: &Scene, command: &mut Command) -> Seen {
    let output = command.output().map_err(Fault::told)?;
    let seen = whole(&output, 7, b"out\n", b"err\n")?;
    scene.ran("a")?;
    let limits = output.limits.map(|it| format!("{:?} {}", it.mechanism, it.missing.len()));
    Ok(format!("{seen} {limits:?}"))
}

fn tree(scene: &Scene) -> Seen {
    run(scene, scene.script("a", SHORT).contain(Contain::Tree))
}

fn group(scene: &Scene) -> Seen {
    run(scene, scene.script("a", SHORT).contain(Contain::Group))
}

fn tree_task(scene: &Scene) -> Seen {
    let mut command = scene.script("a", SHORT);
    let task = command.contain(Contain::Tree).output_async();
    let output = in_a_task(task)?.map_err(Fault::told)?;
    let seen = whole(&output, 7, b"out\n", b"err\n")?;
    scene.ran("a")?;
    Ok(seen)
}

fn tree_leftovers(scene: &Scene) -> Seen {
    let script = format!(
        "setsid sleep 100 >/dev/null 2>&1 & echo $! >{}; {SHORT}",
        scene.path("pid").display()
    );
    let mut command = scene.script("a", &script);
    let seen = run(scene, command.contain(Contain::Tree))?;
    let contained = seen.starts_with("Cgroup") || seen.starts_with("Supervisor");
    for pid in pids_in(&scene.path("pid"), 1) {
        if contained {
            gone(pid)?;
        } else {
            // Not held, which `containment` tells; so that the machine stays clean.
            pause(|| crate::injector::kill(pid as i32));
        }
    }
    Ok(seen)
}

fn tree_limits(scene: &Scene) -> Seen {
    let mut command = scene.script("a", SHORT);
    run(scene, command.limits(Limits::new().memory_max(256 << 20).pids_max(100)))
}

fn tree_best_effort(scene: &Scene) -> Seen {
    let mut command = scene.script("a", SHORT);
    run(scene, command.limits(Limits::new().memory_max(256 << 20).best_effort()))
}

fn parent_exit(scene: &Scene) -> Seen {
    run(scene, scene.script("a", SHORT).kill_on_parent_exit(Scope::Tree))
}

/// With the waits that are for one thing alone.
fn parent_exit_wait(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "exit 7");
    let child = command.kill_on_parent_exit(Scope::Tree).spawn().map_err(Fault::told)?;
    let status = child.wait().map_err(Fault::told)?;
    // Killed, because what holds it failed.
    let code = status.code().ok_or_else(|| Fault::Told(status.to_string()))?;
    expect("code", code, 7)?;
    scene.ran("a")?;
    Ok(String::new())
}

fn parent_exit_child(scene: &Scene) -> Seen {
    run(scene, scene.script("a", SHORT).kill_on_parent_exit(Scope::Child))
}

fn tree_kill_on_drop(scene: &Scene) -> Seen {
    let mut command = scene.script("a", "sleep 100 & echo $!; echo $$; wait");
    let command = command.contain(Contain::Tree).kill_on_drop();
    let child = command.stdout(Stdio::create(scene.path("pids"))).spawn().map_err(Fault::told)?;
    let containment = format!("{:?}", child.containment());
    let pids = pids_in(&scene.path("pids"), 2);
    drop(child);
    for pid in pids {
        gone(pid)?;
    }
    scene.ran("a")?;
    Ok(containment)
}

fn runner_of_trees(scene: &Scene) -> Seen {
    in_a_runner(scene, |command| {
        command.contain(Contain::Tree);
    })
}

/// Runs three commands, two at once.
fn in_a_runner(scene: &Scene, prepare: impl Fn(&mut Command)) -> Seen {
    let mut runner = Runner::new(2);
    for name in ["a", "b", "c"] {
        let mut command = scene.script(name, &format!("echo {name}"));
        prepare(&mut command);
        runner.push(name, command);
    }
    let (mut told, mut count, mut seen) = (None, 0, Vec::new());
    for (name, capture) in runner.by_ref() {
        count += 1;
        match capture {
            Ok(capture) => {
                expect("stdout", capture.stdout, format!("{name}\n"))?;
                scene.ran(name)?;
                seen.push(format!("{:?}", capture.containment));
            }
            Err(error) => told = Some(error.to_string()),
        }
    }
    expect("results", count, 3)?;
    told.map_or(Ok(seen.join(" ")), |error| Err(Fault::Told(error)))
}

/// Opens a slot; each pass runs two commands in it.
fn slot(_: &Scene) -> Result<Pass, Fault> {
    let slot = new_slot()?;
    Ok(Box::new(move |scene| {
        let script = format!(
            "setsid sleep 100 >/dev/null 2>&1 & echo $! >{}; {SHORT}",
            scene.path("pid").display()
        );
        let mut seen = String::new();
        for name in ["a", "b"] {
            let mut command = scene.script(name, if name == "a" { &script } else { SHORT });
            let output = command.contain_in(&slot).output().map_err(Fault::told)?;
            seen += &whole(&output, 7, b"out\n", b"err\n")?;
            scene.ran(name)?;
        }
        for pid in pids_in(&scene.path("pid"), 1) {
            gone(pid)?;
        }
        Ok(seen)
    }))
}

fn new_slot() -> Result<TreeSlot, Fault> {
    TreeSlot::new().map_err(Fault::told)
}

/// Opens slots; each pass is a runner of three commands in them.
fn slot_runner(_: &Scene) -> Result<Pass, Fault> {
    let slots = [new_slot()?, new_slot()?, new_slot()?];
    Ok(Box::new(move |scene| {
        let next = std::cell::Cell::new(0);
        in_a_runner(scene, |command| {
            next.set(next.get() + 1);
            command.contain_in(&slots[next.get() % 3]);
        })
    }))
}
