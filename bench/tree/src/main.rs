//! What it costs to hold a tree, how fast one of 500 processes is killed, and how late a timeout is told.
//!
//! `tree CHILD [PIPEWRIGHT]` measures as the user that runs it; as root it then runs itself again as a user that
//! owns nothing, who can have no cgroup, so that the supervisor is measured too. With the path of
//! the tool it also kills each process of a `pipewright run` and waits until nobody is left.

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, Contain, Containment, Outcome, ProcessHandle, Scope, Stdio};
use pipewright_bench::interleaved;
use pipewright_bench::stats::{Summary, quantile};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Each with the ways one after the other, so that what the machine does to one it does to all.
const ROUNDS: usize = 1000;
const KILLS: usize = 15;
const NOBODY: u32 = 65_534;
const MARK: &str = "PIPEWRIGHT_BENCH_TREE";

#[derive(Clone, Copy)]
enum Way {
    Alone,
    Tree,
    EndsWithUs,
}

const WAYS: [(&str, Way); 3] = [
    ("not held", Way::Alone),
    ("contain(Tree)", Way::Tree),
    ("kill_on_parent_exit(Tree)", Way::EndsWithUs),
];

fn main() -> Result<()> {
    let child = std::env::args().nth(1).ok_or("usage: tree CHILD [PIPEWRIGHT]")?;
    let tool = std::env::args().nth(2);
    if tool.as_deref() == Some("first") {
        return first(&child);
    }
    let held = start(&child, Way::Tree)?.containment();
    println!("\n## {held}\n");
    starts(&child)?;
    kills()?;
    timeouts()?;
    if let Some(tool) = &tool {
        deaths(tool)?;
    }
    if held == Containment::Cgroup {
        let own = std::env::current_exe()?;
        Command::new(own).arg(&child).args(tool).uid(NOBODY).gid(NOBODY).run()?;
    }
    Ok(())
}

fn start(child: &str, way: Way) -> Result<Child> {
    let mut command = Command::new(child);
    match way {
        Way::Alone => {}
        Way::Tree => {
            command.contain(Contain::Tree);
        }
        Way::EndsWithUs => {
            command.kill_on_parent_exit(Scope::Tree);
        }
    }
    Ok(command.spawn()?)
}

fn starts(child: &str) -> Result<()> {
    // The time until the start has returned, and until the child is gone.
    let rounds = interleaved(ROUNDS, &WAYS, |_, (_, way)| -> Result<[f64; 2]> {
        let began = Instant::now();
        let running = start(child, *way)?;
        let started = began.elapsed();
        running.wait()?;
        drop(running);
        Ok([started, began.elapsed()].map(micros))
    })?;
    let times = |way: usize, which: usize| -> Vec<f64> {
        rounds.iter().map(|round| round[way][which]).collect()
    };
    println!("| way | start µs (p10..p90) | added | start, wait and drop µs | added |");
    println!("|---|--:|--:|--:|--:|");
    let alone = [summary(&times(0, 0))?.median, summary(&times(0, 1))?.median];
    for (index, (name, _)) in WAYS.into_iter().enumerate() {
        let (start, all) = (times(index, 0), summary(&times(index, 1))?.median);
        let part = |share: f64| quantile(&start, share).ok_or("nothing was measured");
        let median = summary(&start)?.median;
        println!(
            "| {name} | {:.0} ({:.0}..{:.0}) | {:.0} | {:.0} | {:.0} |",
            median,
            part(0.1)?,
            part(0.9)?,
            median - alone[0],
            all,
            all - alone[1]
        );
    }
    let mut firsts = Vec::new();
    for _ in 0..21 {
        let said = Command::new(std::env::current_exe()?).args([child, "first"]).read()?;
        firsts.push(micros(Duration::from_nanos(said.parse()?)));
    }
    println!(
        "\nThe first start of a process with kill_on_parent_exit(Tree), after one that is not held: {:.0} µs more than that.",
        summary(&firsts)?.median
    );
    Ok(())
}

/// In a process of its own: how much longer the first held start takes than one that is not.
fn first(child: &str) -> Result<()> {
    start(child, Way::Alone)?.wait()?;
    let began = Instant::now();
    let alone = start(child, Way::Alone)?;
    let plain = began.elapsed();
    alone.wait()?;
    let began = Instant::now();
    let held = start(child, Way::EndsWithUs)?;
    let first = began.elapsed();
    held.wait()?;
    println!("{}", first.saturating_sub(plain).as_nanos());
    Ok(())
}

/// 500 processes: children, daemons that have lost their parents, sessions of their own.
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
        let stdout = tree.stdout.take().ok_or("its stdout is piped")?;
        BufReader::new(stdout).lines().next().ok_or("it said nothing")??;
        while marked(&mark) != 500 {
            thread::park_timeout(Duration::from_millis(1));
        }
        let began = Instant::now();
        tree.kill()?;
        tree.wait()?;
        // Returns when nobody is left.
        drop(tree);
        times.push(micros(began.elapsed()));
        if marked(&mark) != 0 {
            return Err("somebody is left".into());
        }
    }
    let times = summary(&times)?;
    println!(
        "\n500 processes killed by {containment}: {:.1} ms (least {:.1}, most {:.1}, {KILLS} times)",
        times.median / 1000.0,
        times.least / 1000.0,
        times.most / 1000.0
    );
    Ok(())
}

/// How late a timeout is told: of a shell with a child that hears the request to end, or hears nothing and is
/// killed after the grace. Both hold the pipe that is read.
fn timeouts() -> Result<()> {
    const TIME: Duration = Duration::from_millis(100);
    const GRACE: Duration = Duration::from_millis(50);
    for (who, script, least) in [
        ("that end when asked", "sleep 60 & sleep 60", TIME),
        ("that have to be killed", "trap '' TERM; sleep 60 & sleep 60", TIME + GRACE),
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
            "\nA timeout of 100 ms, of processes {who}: told {:.1} ms after it was due (most {:.1}, {KILLS} times)",
            late.median / 1e3,
            late.most / 1e3
        );
    }
    Ok(())
}

/// How long anybody outlives a process of `pipewright run` that is killed.
fn deaths(tool: &str) -> Result<()> {
    let script = "(setsid sh -c \"sleep 300 & sleep 300\") & sleep 300";
    for (index, name) in ["pipewright", "the guard", "the supervisor"].into_iter().enumerate() {
        let mut times = Vec::new();
        for round in 0..KILLS {
            let mark = format!("{}-{index}-{round}", std::process::id());
            let mut command = Command::new(tool);
            command.args(["run", "--quiet", "--", "sh", "-c", script]).env(MARK, &mark);
            let run = command.stdin(Stdio::null()).spawn()?;
            let ours = loop {
                let ours = our_own(run.id());
                // The tool, two shells, three sleeps.
                if ours.len() == 3 && marked(&mark) == 6 {
                    break ours;
                }
                thread::park_timeout(Duration::from_millis(1));
            };
            let victim = ProcessHandle::open(ours[index])?;
            let began = Instant::now();
            victim.kill()?;
            while marked(&mark) != 0 {}
            times.push(micros(began.elapsed()));
            run.wait()?;
        }
        let times = summary(&times)?;
        println!(
            "\n{name} killed in the middle of a run: nobody is left after {:.1} ms (most {:.1}, {KILLS} times)",
            times.median / 1000.0,
            times.most / 1000.0
        );
    }
    Ok(())
}

/// The tool, the guard and the supervisor: each the child of the one before.
fn our_own(tool: u32) -> Vec<u32> {
    let mut ours = vec![tool];
    for _ in 0..2 {
        let parent = ours[ours.len() - 1];
        let children = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists =
            children.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<u32> = lists
            .flat_map(|list| {
                list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        let is_ours = |pid: &&u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "pw-supervisor")
        };
        ours.extend(pids.iter().find(is_ours));
    }
    ours
}

/// How many processes that have the mark in their environment run.
fn marked(mark: &str) -> usize {
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
