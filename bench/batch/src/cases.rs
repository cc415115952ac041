//! The cases.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use pipewright::{Command, Stdio};
use pipewright_bench::interleaved;

use super::peers::{Measured, Peer, measured};
use super::{Result, Setup, summary};

/// Jobs of a cell: enough for a second or more.
const JOBS: usize = 20_000;
/// GNU parallel takes 15 to 20 ms for each job.
const PARALLEL_JOBS: usize = 400;

pub(crate) fn rate(setup: &Setup) -> Result<()> {
    let peers = [Peer::Pipewright, Peer::Xargs, Peer::Make, Peer::Ninja, Peer::Parallel];
    for at_once in [2, 32] {
        println!("\n{JOBS} jobs that do nothing, {at_once} at once:\n");
        compare(setup, &peers, at_once)?;
    }
    Ok(())
}

pub(crate) fn log(setup: &Setup) -> Result<()> {
    let peers = [Peer::PipewrightWithoutLog, Peer::Pipewright, Peer::PipewrightGroup, Peer::Xargs];
    println!("\n{JOBS} jobs that do nothing, 2 at once:\n");
    compare(setup, &peers, 2)
}

/// Prints the rate of each peer, and its ratio to the first one's in the same round.
fn compare(setup: &Setup, peers: &[Peer], at_once: usize) -> Result<()> {
    let (here, missing): (Vec<Peer>, Vec<Peer>) =
        peers.iter().partition(|peer| peer.is_here(setup));
    let jobs = |peer: Peer| if peer == Peer::Parallel { PARALLEL_JOBS } else { JOBS };
    // Writes the inputs, and warms up.
    for peer in &here {
        peer.run(setup, jobs(*peer), at_once)?;
    }
    let rounds = interleaved(setup.rounds, &here, |_, peer| -> Result<f64> {
        let Measured { time, .. } = peer.run(setup, jobs(*peer), at_once)?;
        Ok(jobs(*peer) as f64 / time.as_secs_f64())
    })?;
    println!("| | jobs/s, median (min..max) | rate of the first ÷ this, in the same round |");
    println!("|---|--:|--:|");
    for (index, peer) in here.iter().enumerate() {
        let rates: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
        let ratios: Vec<f64> = rounds.iter().map(|round| round[0] / round[index]).collect();
        let (rate, ratio) = (summary(&rates)?, summary(&ratios)?);
        println!(
            "| {} | {:.0} ({:.0}..{:.0}) | {:.2} ({:.2}..{:.2}) |",
            peer.name(),
            rate.median,
            rate.least,
            rate.most,
            ratio.median,
            ratio.least,
            ratio.most
        );
    }
    for peer in missing {
        println!("\n{} is not installed.", peer.name());
    }
    Ok(())
}

pub(crate) fn graph(setup: &Setup) -> Result<()> {
    const NODES: usize = 10_000;
    for (name, is_deep) in [("one after all others", false), ("each after the one before", true)] {
        let jobs = setup.folder.join(format!("graph-{is_deep}.jsonl"));
        let ninja = setup.folder.join(format!("graph-{is_deep}.ninja"));
        fs::write(&jobs, graph_of_jobs(setup, NODES, is_deep)?)?;
        fs::write(&ninja, graph_for_ninja(setup, NODES, is_deep)?)?;
        let run = |tool: &bool| -> Result<f64> {
            let mut command =
                Command::new(if *tool { setup.tool.as_os_str() } else { "ninja".as_ref() });
            command.current_dir(&setup.folder).stdin(Stdio::null());
            if *tool {
                command
                    .args(["batch", "--quiet", "--jsonl", "-j2", "--log"])
                    .arg(setup.new_file("db"))
                    .arg("-a")
                    .arg(&jobs);
            } else {
                command.args(["--quiet", "-j2", "-f"]).arg(&ninja);
            }
            Ok(NODES as f64 / measured(&mut command)?.time.as_secs_f64())
        };
        let rounds = interleaved(setup.rounds, &[true, false], |_, tool| run(tool))?;
        let [ours, theirs] =
            [0, 1].map(|at| rounds.iter().map(|round| round[at]).collect::<Vec<f64>>());
        let ratios: Vec<f64> = rounds.iter().map(|round| round[0] / round[1]).collect();
        let (ours, theirs, ratio) = (summary(&ours)?, summary(&theirs)?, summary(&ratios)?);
        println!(
            "{NODES} jobs, {name}: {:.0} jobs/s, ninja {:.0}; ratio {:.2} ({:.2}..{:.2})\n",
            ours.median, theirs.median, ratio.median, ratio.least, ratio.most
        );
    }
    Ok(())
}

fn graph_of_jobs(setup: &Setup, nodes: usize, is_deep: bool) -> Result<String> {
    let mut text = String::new();
    for number in 0..nodes {
        let after = match (is_deep, number) {
            (true, 1..) => format!("\"j{}\"", number - 1),
            (false, _) if number + 1 == nodes => {
                (0..number).map(|it| format!("\"j{it}\"")).collect::<Vec<_>>().join(",")
            }
            _ => String::new(),
        };
        writeln!(
            text,
            "{{\"id\":\"j{number}\",\"argv\":[\"{}\",\"{number}\"],\"after\":[{after}]}}",
            setup.child.display()
        )?;
    }
    Ok(text)
}

fn graph_for_ninja(setup: &Setup, nodes: usize, is_deep: bool) -> Result<String> {
    let mut text = format!("rule run\n  command = {} $n\n", setup.child.display());
    for number in 0..nodes {
        write!(text, "build j{number}: run")?;
        match (is_deep, number) {
            (true, 1..) => write!(text, " j{}", number - 1)?,
            (false, _) if number + 1 == nodes => {
                for it in 0..number {
                    write!(text, " j{it}")?;
                }
            }
            _ => {}
        }
        write!(text, "\n  n = {number}\n")?;
    }
    Ok(text)
}

pub(crate) fn output(setup: &Setup) -> Result<()> {
    const COUNT: usize = 1000;
    let lines = setup.folder.join("output.txt");
    fs::write(&lines, (1..=COUNT).map(|number| format!("{number}\n")).collect::<String>())?;
    let run = |writers: &Writers| -> Result<Duration> {
        let mut command = Command::new(match writers {
            Writers::Batch => setup.tool.as_os_str(),
            Writers::Parallel => "parallel".as_ref(),
            Writers::Alone => "xargs".as_ref(),
        });
        command.stdin(Stdio::null());
        match writers {
            Writers::Batch => command.args(["batch", "--quiet", "--keep-order", "-j2", "-a"]),
            Writers::Parallel => command.args(["--will-cite", "--keep-order", "-j2", "-a"]),
            Writers::Alone => command.args(["-P2", "-n1", "-a"]),
        };
        command.arg(&lines).arg(&setup.writer);
        let began = Instant::now();
        command.stdout(Stdio::create(setup.folder.join("output"))).run()?;
        Ok(began.elapsed())
    };
    let mut all = vec![Writers::Batch, Writers::Alone];
    all.extend(Peer::Parallel.is_here(setup).then_some(Writers::Parallel));
    let rounds = interleaved(setup.rounds, &all, |_, writers| run(writers))?;
    println!("{COUNT} jobs of 1 MiB, 2 at once, into a file:\n");
    println!("| | seconds, median (min..max) | ratio to the first, in the same round |");
    println!("|---|--:|--:|");
    for (index, writers) in all.iter().enumerate() {
        let seconds: Vec<f64> = rounds.iter().map(|round| round[index].as_secs_f64()).collect();
        let ratios: Vec<f64> = rounds
            .iter()
            .map(|round| round[index].as_secs_f64() / round[0].as_secs_f64())
            .collect();
        let (time, ratio) = (summary(&seconds)?, summary(&ratios)?);
        let name = match writers {
            Writers::Batch => "pipewright batch --keep-order",
            Writers::Parallel => "GNU parallel --keep-order",
            Writers::Alone => "xargs: the jobs write to the file themselves",
        };
        println!(
            "| {name} | {:.2} ({:.2}..{:.2}) | {:.2} ({:.2}..{:.2}) |",
            time.median, time.least, time.most, ratio.median, ratio.least, ratio.most
        );
    }
    Ok(())
}

/// The programs of the case `output`.
enum Writers {
    Batch,
    Parallel,
    Alone,
}

pub(crate) fn million(setup: &Setup) -> Result<()> {
    const COUNT: usize = 1_000_000;
    const EACH_TELLS: [&str; 5] = ["--", "sh", "-c", "echo started; exec sleep 60", "sh"];
    let lines = setup.folder.join("million.txt");
    fs::write(&lines, (1..=COUNT).map(|number| format!("{number}\n")).collect::<String>())?;
    let mut firsts = Vec::new();
    for _ in 0..setup.rounds {
        firsts.push(
            first_start(setup, &["-a".as_ref(), lines.as_os_str()], &EACH_TELLS)?.as_secs_f64()
                * 1e3,
        );
    }
    let first = summary(&firsts)?;
    println!(
        "The first of {COUNT} jobs starts after {:.1} ms ({:.1}..{:.1}).\n",
        first.median, first.least, first.most
    );
    let mut command = Command::new(&setup.tool);
    command
        .args(["batch", "--quiet", "-j2", "--log"])
        .arg(setup.new_file("db"))
        .arg("-a")
        .arg(&lines)
        .arg(&setup.child);
    let done = measured(&mut command.stdin(Stdio::null()).owned())?;
    let peak = done
        .peak_bytes
        .map_or("unknown".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6));
    println!(
        "All of them: {:.0} s, {:.0} jobs/s, peak memory {peak}.",
        done.time.as_secs_f64(),
        COUNT as f64 / done.time.as_secs_f64()
    );
    Ok(())
}

pub(crate) fn resume(setup: &Setup) -> Result<()> {
    const DONE: usize = 100_000;
    // The command is part of the identity of a job, so both runs have the same.
    const LAST_ONE_TELLS: [&str; 5] =
        ["--", "sh", "-c", "[ \"$1\" != new ] || { echo started; exec sleep 60; }", "sh"];
    let lines = setup.folder.join("resume.txt");
    let text: String = (1..=DONE).map(|number| format!("{number}\n")).collect();
    fs::write(&lines, &text)?;
    let log = setup.new_file("db");
    let mut command = Command::new(&setup.tool);
    command
        .args(["batch", "--quiet", "-j2", "--log"])
        .arg(&log)
        .arg("-a")
        .arg(&lines)
        .args(LAST_ONE_TELLS);
    measured(command.stdin(Stdio::null()))?;
    fs::write(&lines, text + "new\n")?;
    let mut times = Vec::new();
    for _ in 0..setup.rounds {
        let copy = setup.new_file("db");
        fs::copy(&log, &copy)?;
        let options = [
            "--resume".as_ref(),
            "--log".as_ref(),
            copy.as_os_str(),
            "-a".as_ref(),
            lines.as_os_str(),
        ];
        times.push(first_start(setup, &options, &LAST_ONE_TELLS)?.as_secs_f64() * 1e3);
    }
    let time = summary(&times)?;
    println!(
        "After {DONE} jobs that are done, the first new one starts after {:.0} ms ({:.0}..{:.0}).",
        time.median, time.least, time.most
    );
    Ok(())
}

/// Returns the time from the start of the tool until its first job writes a byte, and then stops the tool.
fn first_start(setup: &Setup, options: &[&OsStr], command: &[&str]) -> Result<Duration> {
    let began = Instant::now();
    let mut child = Command::new(&setup.tool)
        .args(["batch", "--quiet", "--line-buffer", "-j1"])
        .args(options)
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("stdout is not piped")?;
    let line = BufReader::new(stdout).lines().next();
    let time = began.elapsed();
    child.kill()?;
    child.wait()?;
    line.ok_or("no job started")??;
    Ok(time)
}
