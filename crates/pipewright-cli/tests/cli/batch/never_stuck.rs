//! Batches that always end: graphs with failures, timeouts, jobs that cannot start, and too few handles.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::super::Watchdog;
use super::super::random::{Random, seed};
use super::{Place, err, out, pace, sorted};

#[test]
fn every_job_runs_below_a_low_limit_of_open_files() {
    let place = Place::new();
    let numbers: Vec<String> = (1..=40).map(|number| number.to_string()).collect();
    for contain in ["tree", "group"] {
        let words = format!(
            "ulimit -n 24; exec $PW batch --contain {contain} --progress none -j20 -- \
             sh -c 'sleep 0.02; echo {{}}' ::: {}",
            numbers.join(" ")
        );
        let output = place.sh(&words);
        assert_eq!(output.status.code(), Some(0), "{contain}: {}", err(&output));
        assert_eq!(sorted(out(&output)), sorted(&numbers.join("\n")), "{contain}");
    }
}

/// The ways in which a job of a random graph ends.
const ENDS: [&str; 7] = [
    r#""argv":["true"]"#,
    r#""argv":["true"]"#,
    r#""argv":["false"]"#,
    r#""argv":["/no/such/program"]"#,
    r#""argv":["true"],"cwd":"/no/such/folder""#,
    r#""shell":"kill -9 $$""#,
    r#""shell":"sleep 600","timeout":"SOON""#,
];

#[test]
fn random_graphs_end_and_each_job_has_one_outcome() {
    let _watchdog = Watchdog::start(300);
    let seed = seed(7);
    let mut random = Random::of(seed);
    for round in 0..8 {
        let place = Place::new();
        let jobs = 5 + random.below(20);
        // A job is after jobs of lower ranks; the lines are in another order.
        let mut lines = Vec::new();
        let mut after_of = BTreeMap::new();
        let mut fails = BTreeMap::new();
        for rank in 0..jobs {
            let end = random.pick(&ENDS).replace("SOON", &pace::option(100));
            let after: Vec<u64> =
                (0..random.below(3)).filter(|_| rank > 0).map(|_| random.below(rank)).collect();
            let names: Vec<String> = after.iter().map(|rank| format!("\"j{rank}\"")).collect();
            lines.push(format!(r#"{{"id":"j{rank}",{end},"after":[{}]}}"#, names.join(",")));
            fails.insert(rank, end != ENDS[0]);
            after_of.insert(rank, after);
        }
        for at in 1..lines.len() {
            lines.swap(at, random.below(at as u64 + 1) as usize);
        }
        place.write("jobs", &(lines.join("\n") + "\n"));
        let args = ["-j3", "--jsonl", "--from", "jobs", "--log", "run.db", "--retries", "1"];
        let output = place.batch(&[&args[..], &["--retry-delay", "1ms"]].concat());
        let code = output.status.code();
        assert!(
            code == Some(0) || code == Some(123),
            "seed {seed}, round {round}: {}",
            err(&output)
        );
        // What each job has to become, from the lowest rank on.
        let mut expected: BTreeMap<u64, &str> = BTreeMap::new();
        for rank in 0..jobs {
            let is_held_up = after_of[&rank].iter().any(|other| expected[other] != "succeeded");
            let state = match (is_held_up, fails[&rank]) {
                (true, _) => "skipped",
                (false, true) => "failed",
                (false, false) => "succeeded",
            };
            expected.insert(rank, state);
        }
        let listed = place.tool(&["jobs", "run.db", "--json"]).output().unwrap();
        let mut found = BTreeMap::new();
        for line in out(&listed).lines() {
            let job: Value = serde_json::from_str(line).unwrap();
            let name = job["name"].as_str().unwrap();
            let rank: u64 = name[1..].parse().unwrap();
            assert_eq!(found.insert(rank, job["state"].as_str().unwrap().to_owned()), None);
        }
        let mut differs = String::new();
        for (rank, state) in &expected {
            if found.get(rank).map(String::as_str) != Some(state) {
                let _ = writeln!(differs, "j{rank}: {:?}, not {state}", found.get(rank));
            }
        }
        assert_eq!(differs, "", "seed {seed}, round {round}:\n{}", lines.join("\n"));
    }
}

/// Makes a named pipe that nobody else opens.
#[cfg(unix)]
fn make_pipe(place: &Place, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(place.path(name)).status().unwrap();
    assert!(made.success());
}

#[cfg(unix)]
#[test]
fn an_input_that_is_a_pipe_without_a_writer_stops_its_job_alone() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    make_pipe(&place, "pipe");
    let timeout = pace::option(300);
    let jobs = format!(
        "{{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\",\"timeout\":\"{timeout}\"}}\n\
         {{\"argv\":[\"echo\",\"other\"]}}\n"
    );
    let output = place.batch_of(&jobs, &["--jsonl", "-j2", "--log", "run.db"]);
    assert_eq!((output.status.code(), out(&output)), (Some(123), "other\n"), "{}", err(&output));
    let Some(rows) = place.rows("run.db", "SELECT outcome FROM attempts ORDER BY job") else {
        return;
    };
    assert_eq!(rows, ["timed_out", "exited"]);
    // The end of the batch, and two signals.
    let jobs = "{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\"}\n";
    let output = place.batch_of(jobs, &["--jsonl", "--batch-timeout", &timeout]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    place.write("jobs", jobs);
    let output = place.sh(
        "$PW batch --jsonl -a jobs --quiet & while ! kill -TERM $!; do :; done; sleep 0.3; kill -TERM $!; \
         sleep 0.3; kill -TERM $!; wait $!; echo $?",
    );
    assert_eq!(out(&output), "143\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn a_job_reads_what_a_late_writer_sends_through_a_pipe() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    make_pipe(&place, "pipe");
    place.write("jobs", "{\"argv\":[\"cat\"],\"stdin_file\":\"pipe\",\"timeout\":\"60s\"}\n");
    let output =
        place.sh("$PW batch --jsonl -a jobs --progress none & echo early > pipe; wait $!; echo $?");
    assert_eq!(out(&output), "early\n0\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn jobs_that_come_through_a_pipe_without_a_writer_obey_the_end_of_the_batch() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    make_pipe(&place, "pipe");
    let output = place.batch(&["-a", "pipe", "--batch-timeout", &pace::option(300), "--", "echo"]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    let output = place.sh("$PW batch --progress none -a pipe -- echo & echo one > pipe; wait $!");
    assert_eq!(out(&output), "one\n", "{}", err(&output));
}

#[cfg(unix)]
#[test]
fn streams_of_a_command_that_are_pipes_obey_its_time() {
    let _watchdog = Watchdog::start(60);
    let place = Place::new();
    make_pipe(&place, "pipe");
    let timeout = pace::option(200);
    for stream in ["--stdin", "--stdout", "--stderr"] {
        let words = ["run", "--timeout", &timeout, stream, "pipe", "--", "true"];
        let output = place.tool(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{stream}: {}", err(&output));
        assert!(err(&output).contains("no other process has opened it"), "{}", err(&output));
    }
    let output = place.sh(
        "$PW run --stdin pipe -- cat & until kill -TERM $!; do :; done; sleep 0.3; kill -TERM $!; wait $!; echo $?; \
         $PW run --timeout 60 --stdin pipe -- cat & echo late > pipe; wait $!",
    );
    assert_eq!(out(&output), "143\nlate\n", "{}", err(&output));
}
