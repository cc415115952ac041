//! Networks that are cut for a time.
//!
//! `PIPEWRIGHT_TEST_CUT_SECONDS` sets the length of the long cuts.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::super::random;
use super::network::Network;
use super::ssh::Sshd;
use super::*;

/// Returns a time after which a node is lost.
fn long_cut() -> Duration {
    Duration::from_secs(random::number("PIPEWRIGHT_TEST_CUT_SECONDS").unwrap_or(8))
}

/// Makes the programs of a cluster whose one node is in the far network. The batch runs in its allocation.
fn cluster(place: &Place, network: &Network) -> Command {
    let far = &network.far;
    let write = |name: &str, script: &str| {
        place.write(name, &format!("#!/bin/sh\n{script}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(name), mode).unwrap();
    };
    fs::create_dir(place.path("bin")).unwrap();
    let job = "JobId=7 JobName=x UserId=x GroupId=x JobState=RUNNING TimeLimit=UNLIMITED NodeList=n1 NumNodes=1";
    write("bin/scontrol", &format!("[ $2 = hostnames ] && echo n1 || echo '{job}'"));
    let run = format!("exec nsenter --net=/run/netns/{far} env SLURMD_NODENAME=n1 \"$@\"");
    write("bin/srun", &format!("while case $1 in -*) ;; *) false ;; esac; do shift; done\n{run}"));
    write("bin/squeue", "exit 0");
    let mut command = Network::enter(&network.near);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", place.path("bin").display()));
    command.env("SLURM_JOB_ID", "7").env("XDG_CACHE_HOME", place.path(""));
    command.arg(TOOL).args([
        "batch",
        "--progress",
        "none",
        "--on",
        "slurm",
        "--listen",
        "10.99.0.1",
    ]);
    command.current_dir(place.path(""));
    command
}

/// Returns the number of jobs that run in that folder.
fn jobs_in(folder: &Path) -> usize {
    let is_job = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sh\0-c\0echo ")
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let here = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
    pids.filter(is_job).filter(here).count()
}

#[test]
fn a_node_that_connects_by_itself_comes_back_after_a_cut_and_no_job_ends_twice() {
    let seconds = long_cut().as_secs();
    let _watchdog = Watchdog::start(240 + seconds);
    let Some(network) = Network::new() else { return };
    let place = Place::new();
    let mut command = cluster(&place, &network);
    // A copy that runs beside another one cannot have the lock.
    let script = "echo {} >> starts; exec 9> lock-{}; flock -n 9 || echo {} >> copies
        until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    command.args([
        "-j2",
        "--max-lost",
        "9",
        "--log",
        "run.db",
        "--",
        "sh",
        "-c",
        script,
        ":::",
        "1",
        "2",
    ]);
    command.env(MARK, mark("slurm-cut")).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("both jobs run", || place.lines("starts").len() == 2);
    // At the limit: whether the node is lost depends on the moment.
    network.cut(Duration::from_secs(3));
    let end = Instant::now() + Duration::from_secs(6);
    until("it is known if the node is lost", || Instant::now() >= end);
    until("both jobs run", || jobs_in(&place.path("")) == 2);
    let starts = place.lines("starts").len();
    eprintln!("after a cut of 3 s: {starts} starts");
    network.cut(long_cut());
    assert_eq!(jobs_in(&place.path("")), 0);
    until("both jobs run again", || place.lines("starts").len() == starts + 2);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        (place.lines("ends"), place.read("copies")),
        (vec!["1".into(), "2".into()], String::new())
    );
    assert!(err(&output).contains("node n1 is lost with 2 jobs: "), "{}", err(&output));
    until("nothing is left", || marked("slurm-cut").is_empty());
}

#[test]
fn a_short_cut_of_the_network_loses_nothing_and_a_long_one_the_node() {
    let _watchdog = Watchdog::start(240 + long_cut().as_secs());
    let Some(network) = Network::new() else { return };
    let Some(sshd) = Sshd::start_in(Some(network)) else { return };
    let network = sshd.network.as_ref().unwrap();
    let place = Place::new();
    let script = "echo {} >> starts; until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    let args = ["--log", "run.db", "--", "sh", "-c", script, ":::", "1", "2"];
    let mut command = Network::enter(&network.near);
    let batch = batch_on(&place, &sshd.nodes(&place, 1), &args);
    command.arg(batch.get_program()).args(batch.get_args()).current_dir(place.path(""));
    command.env(MARK, mark("ssh-cut")).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("both jobs run", || place.lines("starts").len() == 2);
    network.cut(Duration::from_secs(1));
    // Longer than anybody waits for an answer.
    let end = Instant::now() + Duration::from_secs(6);
    until("the answers are there again", || Instant::now() >= end);
    assert_eq!(place.lines("starts").len(), 2, "a cut of a second has lost the node");

    let jobs = || jobs_in(&place.path(""));
    assert_eq!(jobs(), 2);
    network.cut(long_cut());
    // The node has killed them, although nobody could tell it to.
    assert_eq!(jobs(), 0);
    until("both jobs run again", || place.lines("starts").len() == 4);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), ["1", "2"]);
    assert!(err(&output).contains("is lost with 2 jobs: no answer for 5.0 s"), "{}", err(&output));
}
