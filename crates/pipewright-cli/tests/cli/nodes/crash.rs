//! Batches and workers that are killed at random moments: each job ends exactly once in the log, and never runs beside a copy of
//! itself.
//!
//! `PIPEWRIGHT_TEST_KILLS` sets the number of kills, `PIPEWRIGHT_TEST_SEED` repeats the choices of a run that failed.

use std::process::{Child, Stdio};

use super::super::random::{self, Random};
use super::*;

const KILLS: u64 = 8;
const JOBS: u64 = 1200;

/// Each job refuses to run beside a copy of itself: the kernel gives a lock free when its last holder has ended.
const JOB: &str = "exec 9> lock-{}; flock -n 9 || echo {} >> copies
echo {} >> ran; sleep 0.0{}";

fn started(place: &Place) -> Child {
    let mut args = vec!["--log", "run.db", "--from", "jobs"];
    if place.path("run.db").exists() {
        args.push("--resume");
    }
    args.extend(["--max-lost", "1000000", "--", "sh", "-c", JOB]);
    let mut command = batch_on(place, &nodes(3), &args);
    let messages = std::fs::File::create(place.path("messages")).unwrap();
    command.env(MARK, mark("nodes-crash")).stdout(Stdio::null()).stderr(messages);
    command.stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn every_job_of_killed_batches_and_workers_ends_exactly_once() {
    let kills = random::number("PIPEWRIGHT_TEST_KILLS").unwrap_or(KILLS);
    let _watchdog = Watchdog::start(120 + kills * 20);
    let seed = random::seed(7);
    let mut random = Random::of(seed);
    let place = Place::new();
    let jobs: String = (0..JOBS).map(|job| format!("{}\n", 10 + job % 80 + 100 * job)).collect();
    place.write("jobs", &jobs);
    let mut child = started(&place);
    let ran = || place.read("ran").lines().count() as u64;
    for kill_number in 1..=kills {
        // Some more jobs have begun, or the last of all.
        let wanted = ran() + 1 + random.below(JOBS / kills);
        until("jobs run", || ran() >= wanted || child.try_wait().unwrap().is_some());
        if child.try_wait().unwrap().is_some() {
            break;
        }
        if random.one_in(3) {
            child.kill().unwrap();
            child.wait().unwrap();
            child = started(&place);
        } else {
            let workers = workers(&place);
            let last = workers.len().saturating_sub(3);
            kill(workers[last + random.below((workers.len() - last) as u64) as usize], "KILL");
        }
        eprintln!("kill {kill_number} of {kills} at {} jobs", ran());
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "seed {seed}: {status}: {}", place.read("messages"));
    assert_eq!(place.read("copies"), "", "seed {seed}: two copies of a job ran at the same time");
    let query = "select count(*) from jobs where state = 'succeeded' union all \
                 select count(distinct job) from attempts where outcome = 'exited' and code = 0 union all \
                 select count(*) from attempts where outcome = 'exited'";
    if let Some(rows) = place.rows("run.db", query) {
        let jobs = JOBS.to_string();
        assert_eq!(rows, [jobs.clone(), jobs.clone(), jobs], "seed {seed}");
    }
    until("nothing is left", || marked("nodes-crash").is_empty());
}
