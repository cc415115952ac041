//! The cost of containing a tree, the time to kill a tree of 500 processes, and the delay of a timeout.
//!
//! `tree CHILD [PIPEWRIGHT]` measures as the user that runs it. As root it then runs itself again as a user that owns
//! nothing: that user cannot create a cgroup, so this measures the supervisor. With the path of the tool it also kills
//! each process of a `pipewright run`, and waits until none of the run's processes is left.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    Child, Command, Contain, Containment, Outcome, ProcessHandle, Scope, Stdio, TreeSlot,
};
use pipewright_bench::interleaved;
use pipewright_bench::stats::{Summary, quantile};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rounds of starts. Each starts a child by every containment in turn, so that a disturbance affects all alike.
const ROUNDS: usize = 1000;
const KILLS: usize = 15;
const NOBODY: u32 = 65_534;
const MARK: &str = "PIPEWRIGHT_BENCH_TREE";

#[derive(Clone, Copy)]
enum Variant {
    Uncontained,
    Tree,
    ParentExit,
    Slot,
}

const VARIANTS: [(&str, Variant); 4] = [
    ("not contained", Variant::Uncontained),
    ("contain(Tree)", Variant::Tree),
    ("kill_on_parent_exit(Tree)", Variant::ParentExit),
    ("contain_in(TreeSlot)", Variant::Slot),
];

fn main() -> Result<()> {
    let child = std::env::args().nth(1).ok_or("usage: tree CHILD [PIPEWRIGHT]")?;
    let tool = std::env::args().nth(2);
    if tool.as_deref() == Some("first") {
        return first_start(&child);
    }
    let containment = start(&child, Variant::Tree, None)?.containment();
    println!("\n## {containment}\n");
    starts(&child)?;
    kills()?;
    timeouts()?;
    if let Some(tool) = &tool {
        killed_tool(tool)?;
    }
    if containment == Containment::Cgroup {
        let own = std::env::current_exe()?;
        Command::new(own).arg(&child).args(tool).uid(NOBODY).gid(NOBODY).run()?;
    }
    Ok(())
}

fn start(child: &str, variant: Variant, slot: Option<&TreeSlot>) -> Result<Child> {
    let mut command = Command::new(child);
    match variant {
        Variant::Uncontained => {}
        Variant::Tree => {
            command.contain(Contain::Tree);
        }
        Variant::ParentExit => {
            command.kill_on_parent_exit(Scope::Tree);
        }
        Variant::Slot => {
            command.contain_in(slot.ok_or("no slot")?);
        }
    }
    Ok(command.spawn()?)
}

fn starts(child: &str) -> Result<()> {
    // The time until the start has returned, and until the child is dropped.
    let slot = TreeSlot::new()?;
    let rounds = interleaved(ROUNDS, &VARIANTS, |_, (_, variant)| -> Result<[f64; 2]> {
        let began = Instant::now();
        let running = start(child, *variant, Some(&slot))?;
        let started = began.elapsed();
        running.wait()?;
        drop(running);
        Ok([started, began.elapsed()].map(micros))
    })?;
    let times = |variant: usize, which: usize| -> Vec<f64> {
        rounds.iter().map(|round| round[variant][which]).collect()
    };
    println!("| variant | start µs (p10..p90) | added | start, wait and drop µs | added | ratio |");
    println!("|---|--:|--:|--:|--:|--:|");
    let alone = [summary(&times(0, 0))?.median, summary(&times(0, 1))?.median];
    for (index, (name, _)) in VARIANTS.into_iter().enumerate() {
        let (start, all) = (times(index, 0), summary(&times(index, 1))?.median);
        let part = |share: f64| quantile(&start, share).ok_or("nothing was measured");
        let median = summary(&start)?.median;
        println!(
            "| {name} | {:.0} ({:.0}..{:.0}) | {:.0} | {:.0} | {:.0} | {:.2} |",
            median,
            part(0.1)?,
            part(0.9)?,
            median - alone[0],
            all,
            all - alone[1],
            all / alone[1]
        );
    }
    let mut firsts = Vec::new();
    for _ in 0..21 {
        let nanos = Command::new(std::env::current_exe()?).args([child, "first"]).read()?;
        firsts.push(micros(Duration::from_nanos(nanos.parse()?)));
    }
    println!(
        "\nA process's first start with kill_on_parent_exit(Tree): {:.0} µs more than the uncontained start before it.",
        summary(&firsts)?.median
    );
    Ok(())
}

/// Prints how much longer the first contained start takes than an uncontained one. Runs in a separate process.
fn first_start(child: &str) -> Result<()> {
    start(child, Variant::Uncontained, None)?.wait()?;
    let began = Instant::now();
    let uncontained = start(child, Variant::Uncontained, None)?;
    let plain = began.elapsed();
    uncontained.wait()?;
    let began = Instant::now();
    let contained = start(child, Variant::ParentExit, None)?;
    let first = began.elapsed();
    contained.wait()?;
    println!("{}", first.saturating_sub(plain).as_nanos());
    Ok(())
}

/// Measures the kill of 500 processes: children, orphaned daemons, and session leaders.
fn kills() -> Result<()> {
    let script = "i=0; while [ $i -lt 166 ]; do sleep 600 & (sleep 600 &) ; setsid sleep 600 & \
                  i=$((i+1)); done; sleep 600 & echo ready; wait";
    let mut times = Vec::new();
    let mut containment = Containment::None;
    for round in 0..KILLS {
        let mark = format!("{}-{round}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARK, &mark).stdout(Stdio::piped()).contain(Contain::Tree);
        let mut tree = command.spawn()?;
        containment = tree.containment();
        let stdout = tree.stdout.take().ok_or("stdout is not piped")?;
        BufReader::new(stdout).lines().next().ok_or("the shell printed nothing")??;
        while count_marked(&mark) != 500 {
            thread::park_timeout(Duration::from_millis(1));
        }
        let began = Instant::now();
        tree.kill()?;
        tree.wait()?;
        // Returns when no process of the tree is left.
        drop(tree);
        times.push(micros(began.elapsed()));
        if count_marked(&mark) != 0 {
            return Err("a process of the tree is left".into());
        }
    }
    let times = summary(&times)?;
    println!(
        "\n500 processes killed by {containment}: {:.1} ms (min {:.1}, max {:.1}, {KILLS} times)",
        times.median / 1000.0,
        times.least / 1000.0,
        times.most / 1000.0
    );
    Ok(())
}

/// Measures the delay of a timeout, for a shell and its child that exit on SIGTERM, or ignore it and are killed after
/// the grace period. Both hold the captured pipe.
fn timeouts() -> Result<()> {
    const TIME: Duration = Duration::from_millis(100);
    const GRACE: Duration = Duration::from_millis(50);
    for (label, script, least) in [
        ("exit on SIGTERM", "sleep 60 & sleep 60", TIME),
        ("ignore SIGTERM", "trap '' TERM; sleep 60 & sleep 60", TIME + GRACE),
    ] {
        let mut late = Vec::with_capacity(KILLS);
        for _ in 0..KILLS {
            let mut command = Command::new("sh");
            command.args(["-c", script]).contain(Contain::Tree).timeout(TIME).kill_grace(GRACE);
            let start = Instant::now();
            let capture = command.capture()?;
            late.push(micros(start.elapsed().saturating_sub(least)));
            assert_eq!(capture.outcome, Outcome::TimedOut);
        }
        let late = summary(&late)?;
        println!(
            "\nA timeout of 100 ms, for processes that {label}: reported {:.1} ms late (max {:.1}, {KILLS} times)",
            late.median / 1e3,
            late.most / 1e3
        );
    }
    Ok(())
}

/// Measures how long any process of a `pipewright run` survives after one of the tool's own processes is killed.
fn killed_tool(tool: &str) -> Result<()> {
    let script = "(setsid sh -c \"sleep 300 & sleep 300\") & sleep 300";
    for (index, name) in ["pipewright", "the guard", "the supervisor"].into_iter().enumerate() {
        let mut times = Vec::new();
        for round in 0..KILLS {
            let mark = format!("{}-{index}-{round}", std::process::id());
            let mut command = Command::new(tool);
            command.args(["run", "--quiet", "--", "sh", "-c", script]).env(MARK, &mark);
            let run = command.stdin(Stdio::null()).spawn()?;
            let tool_pids = loop {
                let tool_pids = tool_processes(run.id());
                // The tool, two shells, three sleeps.
                if tool_pids.len() == 3 && count_marked(&mark) == 6 {
                    break tool_pids;
                }
                thread::park_timeout(Duration::from_millis(1));
            };
            let victim = ProcessHandle::open(tool_pids[index])?;
            let began = Instant::now();
            victim.kill()?;
            while count_marked(&mark) != 0 {}
            times.push(micros(began.elapsed()));
            run.wait()?;
        }
        let times = summary(&times)?;
        println!(
            "\n{name} killed in the middle of a run: no process is left after {:.1} ms (max {:.1}, {KILLS} times)",
            times.median / 1000.0,
            times.most / 1000.0
        );
    }
    Ok(())
}

/// Returns the pids of the tool, the guard and the supervisor. Each is the child of the one before.
fn tool_processes(tool: u32) -> Vec<u32> {
    let mut found = vec![tool];
    for _ in 0..2 {
        let parent = found[found.len() - 1];
        let children = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists =
            children.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<u32> = lists
            .flat_map(|list| {
                list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        let is_supervisor = |pid: &&u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "pw-supervisor")
        };
        found.extend(pids.iter().find(is_supervisor));
    }
    found
}

/// Counts the running processes that have the mark in their environment.
fn count_marked(mark: &str) -> usize {
    let wanted = format!("{MARK}={mark}");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_mark = |path: &std::path::Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == wanted.as_bytes())
    };
    pids.filter(|entry| has_mark(&entry.path())).count()
}

fn summary(micros: &[f64]) -> Result<Summary> {
    Ok(Summary::of(micros).ok_or("nothing was measured")?)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
