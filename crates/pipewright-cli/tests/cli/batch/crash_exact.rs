//! Runners that are killed at random moments, and resumed: each job ends exactly once in the log.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::trees::{MARK, mark, marked, until};
use super::random::{self, Random};
use super::{Place, err, pace};

const KILLS: u32 = 15;
const JOBS: usize = 250;

/// Each job refuses to run beside a copy of itself, which a directory with its number shows.
const JOB: &str = "mkdir alive-{} 2> /dev/null || echo {} >> copies
echo {} >> ran; sleep 0.0{}; rmdir alive-{}";

fn run(place: &Place, name: &str, options: &[&str]) -> Child {
    let mut args = vec!["batch", "--progress", "none", "-j3", "--log", "run.db", "--from", "jobs"];
    args.extend(options);
    if place.path("run.db").exists() {
        args.push("--resume");
    }
    args.extend(["--", "sh", "-c", JOB]);
    let mut command: Command = place.tool(&args);
    command.env(MARK, mark(name)).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Kills runners at random moments, and runs the rest.
fn crash(name: &str, options: &[&str]) -> (Place, u64) {
    let place = Place::new();
    let numbers: String = (1..=JOBS).map(|number| format!("{number}\n")).collect();
    place.write("jobs", &numbers);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = random::seed(now);
    let mut random = Random::of(seed);
    let mut killed = 0;
    while killed < KILLS {
        let mut runner = run(&place, name, options);
        let before = place.read("ran").lines().count();
        // After some jobs, and at any moment of the next ones. The jobs of a run that ends sooner are all done.
        let jobs = random.below(12) as usize;
        until("some jobs have started", || {
            place.read("ran").lines().count() >= before + jobs
                || runner.try_wait().unwrap().is_some()
        });
        thread::park_timeout(Duration::from_micros(random.below(20_000)));
        let has_ended = runner.try_wait().unwrap().is_some();
        runner.kill().unwrap();
        let status = runner.wait().unwrap();
        if has_ended {
            let mut text = String::new();
            let _ = std::io::Read::read_to_string(&mut runner.stderr.take().unwrap(), &mut text);
            assert!(status.code() == Some(0) || status.code() == Some(123), "seed {seed}: {text}");
            break;
        }
        killed += 1;
        // The directory is the job's, and nobody removes it after a kill.
        until("the jobs of the killed runner have ended", || marked(name).is_empty());
        for entry in std::fs::read_dir(place.path("")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("alive-") {
                std::fs::remove_dir(entry.path()).unwrap();
            }
        }
    }
    assert!(killed >= 5, "seed {seed}: only {killed} runners could be killed");
    (place, seed)
}

#[test]
fn every_job_of_killed_runners_succeeds_exactly_once_in_the_log() {
    let (place, seed) = crash("batch-crash", &[]);
    let last = run(&place, "batch-crash", &[]).wait_with_output().unwrap();
    assert_eq!(last.status.code(), Some(0), "seed {seed}: {}", err(&last));
    assert_eq!(place.read("copies"), "", "seed {seed}: two copies were alive");
    let mut ran = place.lines("ran");
    ran.dedup();
    assert_eq!(ran.len(), JOBS, "seed {seed}: a job has not run");
    let ok = "where outcome = 'exited' and code = 0";
    let twice = format!("select job from attempts {ok} group by job having count(*) > 1");
    if let Some(rows) = place.rows("run.db", &twice) {
        assert_eq!(rows, [""; 0], "seed {seed}: succeeded twice");
        let count = |query: &str| place.rows("run.db", query).unwrap()[0].parse::<usize>().unwrap();
        assert_eq!(
            count(&format!("select count(distinct job) from attempts {ok}")),
            JOBS,
            "seed {seed}"
        );
        assert_eq!(
            count("select count(*) from jobs where state = 'succeeded'"),
            JOBS,
            "seed {seed}"
        );
        assert_eq!(count("select count(*) from jobs"), JOBS, "seed {seed}");
        assert_eq!(count("select count(*) from running"), 0, "seed {seed}");
    }
}

#[test]
fn no_job_that_runs_once_is_started_twice() {
    let (place, seed) = crash("batch-crash-once", &["--once"]);
    let last = run(&place, "batch-crash-once", &["--once"]).wait_with_output().unwrap();
    assert!(matches!(last.status.code(), Some(0 | 123)), "seed {seed}: {}", err(&last));
    let ran = place.lines("ran");
    let mut distinct = ran.clone();
    distinct.dedup();
    assert_eq!(ran, distinct, "seed {seed}: a job was started twice");
    let Some(unknown) = place.rows("run.db", "select count(*) from jobs where state = 'unknown'")
    else {
        return pace::skipped("the log was not examined");
    };
    let unknown: usize = unknown[0].parse().unwrap();
    let done = place.rows("run.db", "select count(*) from jobs where state = 'succeeded'").unwrap();
    assert_eq!(unknown + done[0].parse::<usize>().unwrap(), JOBS, "seed {seed}");
    // Jobs with a known end have run, and those that are unknown may have.
    assert!(distinct.len() <= JOBS && distinct.len() + unknown >= JOBS, "seed {seed}");
    assert_eq!(last.status.code(), Some(if unknown == 0 { 0 } else { 123 }), "seed {seed}");
}
