//! Nodes and batches that are killed, stopped or drained, some at random moments; random batches end as they do here.
//!
//! `PIPEWRIGHT_TEST_KILLS` sets the number of kills, `PIPEWRIGHT_TEST_BATCHES` that of random batches, and
//! `PIPEWRIGHT_TEST_SEED` repeats the choices of a run that failed.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Map, Value, json};

use super::ends;
use super::network::Sshd;
use super::slurm::{Cluster, on_slurm, until_released};
use super::*;
use crate::random::{self, Random};

/// Starts a batch of jobs that note their starts and their ends, and wait for the file `end` in between.
fn started(place: &Place, name: &str, nodes: &[String], values: &[&str]) -> std::process::Child {
    let script =
        "echo {} >> starts; sleep 600 & until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    let args = [&["--log", "run.db", "--", "sh", "-c", script, ":::"], values].concat();
    let mut command = batch_on(place, nodes, &args);
    command.env(MARK, mark(name)).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn jobs_of_a_killed_node_run_elsewhere_and_none_ends_twice() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let child = started(&place, "node-killed", &nodes(2), &["1", "2", "3", "4", "5", "6"]);
    until("both nodes are full", || place.lines("starts").len() == 4);
    kill(workers(&place)[0], "KILL");
    // The node comes back, and has room for two more. By then nothing of the first two jobs is left.
    until("the other jobs run", || place.lines("starts").len() == 6);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), ["1", "2", "3", "4", "5", "6"]);
    assert!(err(&output).contains("is lost with 2 jobs: "), "{}", err(&output));
    let query = "select outcome, count(*) from attempts group by outcome";
    if let Some(rows) = place.rows("run.db", query) {
        assert_eq!(rows, ["exited|6", "lost|2"]);
    }
    assert_eq!(marked("node-killed"), [0; 0]);
}

#[test]
fn a_node_comes_back_after_its_worker_was_killed() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let child = started(&place, "node-back", &nodes(1), &["1", "2"]);
    until("both jobs run", || place.lines("starts").len() == 2);
    kill(workers(&place)[0], "KILL");
    until("both jobs run again", || place.lines("starts").len() == 4);
    place.write("end", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(place.lines("ends"), ["1", "2"]);
    assert_eq!(workers(&place).len(), 2);
}

#[test]
fn a_job_that_has_lost_two_nodes_is_not_tried_on_a_third() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // It kills the worker that it runs on.
    // Only that of the last line: an older number may be that of another process by now.
    let script = "echo {} >> starts; [ {} = good ] || kill -9 $(tail -n 1 workers); sleep 0.1";
    let args = ["--log", "run.db", "--", "sh", "-c", script, ":::", "bad", "good"];
    let mut nodes = nodes(1);
    nodes.extend(["--max-lost".to_owned(), "3".to_owned()]);
    for (nodes, times) in [(&nodes[..nodes.len() - 2], 2), (&nodes[..], 3)] {
        place.write("starts", "");
        let _ = std::fs::remove_file(place.path("run.db"));
        let output = batch_on(&place, nodes, &args).output().unwrap();
        assert_eq!(output.status.code(), Some(123), "{}", err(&output));
        let starts = place.lines("starts");
        assert_eq!(starts.iter().filter(|value| *value == "bad").count(), times, "{starts:?}");
        assert!(err(&output).contains("job 1 failed: lost: node "), "{}", err(&output));
        let Some(rows) = place.rows("run.db", "select state from jobs where number = 1") else {
            return;
        };
        assert_eq!(rows, ["failed"]);
    }
}

#[test]
fn a_job_that_runs_at_most_once_is_unknown_after_its_node_was_lost() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let script = "echo {} >> starts; kill -9 $(cat workers); sleep 600";
    let args = ["--once", "--log", "run.db", "--", "sh", "-c", script, ":::", "a"];
    let output = batch_on(&place, &nodes(1), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("1 unknown"), "{}", err(&output));
    assert_eq!(place.lines("starts"), ["a"]);
}

#[test]
fn a_node_that_hangs_is_lost_and_its_jobs_have_ended_before_they_run_elsewhere() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // The kernel gives a lock free when its last holder has ended.
    let script = "exec 9> lock-{}; flock -n 9 || echo {} >> copies
        echo $$ >> pids; echo {} >> starts
        sleep 600 & until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
    let args = ["--log", "run.db", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
    let mut command = batch_on(&place, &nodes(3), &args);
    command.env(MARK, mark("node-hangs")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    until("all jobs run", || place.lines("starts").len() == 4);
    // A node with two jobs or one: one that was late has none. Nothing wakes it up again.
    let job = place.read("pids").lines().next().unwrap().parse().unwrap();
    kill(worker_of(&place, job), "STOP");
    let lost = |line: &String| line.contains("is lost with ");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let message = lines.find(lost).expect("the node is given up");
    assert!(message.contains(": no answer for 5.0 s") || message.contains("closed"), "{message}");
    until("its jobs run elsewhere", || place.lines("starts").len() > 4);
    place.write("end", "");
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    until("nothing is left", || marked("node-hangs").is_empty());
    assert_eq!(place.lines("ends"), ["1", "2", "3", "4"]);
    assert_eq!(place.read("copies"), "");
}

#[test]
fn a_drained_node_ends_its_jobs_and_gets_no_more() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let mut child = started(&place, "node-drained", &nodes(2), &["1", "2", "3", "4", "5", "6"]);
    until("both nodes are full", || place.lines("starts").len() == 4);
    let drained = workers(&place)[0];
    kill(drained, "TERM");
    // Until then the jobs run: the signal could come after the last one.
    let said = "no job is started there: SIGTERM was sent to its worker";
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(said)), "it is told");
    place.write("end", "");
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    // Nothing was lost, and so nothing ran twice.
    assert_eq!(place.lines("starts"), ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn nothing_is_left_on_the_nodes_of_a_killed_batch_and_it_goes_on() {
    let _watchdog = Watchdog::start(180);
    let place = Place::new();
    let mut child = started(&place, "batch-killed", &nodes(2), &["1", "2", "3", "4", "5"]);
    until("both nodes are full", || place.lines("starts").len() == 4);
    child.kill().unwrap();
    child.wait().unwrap();
    until("nothing is left", || marked("batch-killed").is_empty());
    place.write("end", "");
    let resumed = batch_on(&place, &nodes(2), &["--resume", "run.db"]).output().unwrap();
    assert!(resumed.status.success(), "{}", err(&resumed));
    assert_eq!(place.lines("ends"), ["1", "2", "3", "4", "5"]);
}

#[test]
fn ctrl_c_drains_and_sigterm_stops_the_jobs_on_nodes() {
    let _watchdog = Watchdog::start(120);
    for (signal, ends) in [("INT", &["1", "2", "3", "4"][..]), ("TERM", &[])] {
        let place = Place::new();
        let child = started(&place, signal, &nodes(2), &["1", "2", "3", "4", "5"]);
        until("both nodes are full", || place.lines("starts").len() == 4);
        kill(child.id(), signal);
        if signal == "INT" {
            // Only then it has arrived for sure.
            let query = "select state from jobs where state = 'not_run'";
            until("it drains", || place.rows("run.db", query).is_none_or(|rows| rows.len() == 1));
            place.write("end", "");
        }
        let output = child.wait_with_output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        assert_eq!(place.lines("ends"), ends, "{signal}: {}", err(&output));
        until("nothing is left", || marked(signal).is_empty());
    }
}

/// Returns the parent of a process.
pub(super) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the worker that a job runs on.
fn worker_of(place: &Place, job: u32) -> u32 {
    let workers = workers(place);
    let mut above = std::iter::successors(Some(job), |pid| parent(*pid));
    above.find(|pid| workers.contains(pid)).expect("it runs on a worker")
}

#[test]
fn jobs_of_a_node_that_is_told_to_end_are_lost_whatever_their_code() {
    let _watchdog = Watchdog::start(120);
    // A handler, the code of a shell, and the signal itself.
    for answer in ["trap 'exit 1' TERM;", "trap 'exit 143' TERM;", ""] {
        let place = Place::new();
        let wait = "until [ -e end ]; do sleep 0.05; done; echo {} >> ends";
        let script = format!("echo $$ >> pids; {answer} echo {{}} >> starts; {wait}");
        let args = ["--log", "run.db", "--", "sh", "-c", &script, ":::", "1"];
        let mut command = batch_on(&place, &nodes(2), &args);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("the job runs", || place.lines("starts").len() == 1);
        let job: u32 = place.read("pids").trim().parse().unwrap();
        let worker = worker_of(&place, job);
        // The worker holds back the end of a job for a moment only. It gets both at once, however long it takes to send
        // them.
        for (pid, signal) in [(worker, "STOP"), (job, "TERM"), (worker, "TERM"), (worker, "CONT")] {
            kill(pid, signal);
        }
        until("the job runs again", || place.lines("starts").len() == 2);
        place.write("end", "");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{answer}: {}", err(&output));
        let text = err(&output);
        assert!(text.contains("it was asked to end; it is queued again"), "{text}");
        if let Some(rows) = place.rows("run.db", "select outcome from attempts order by id") {
            assert_eq!(rows, ["lost", "exited"]);
        }
    }
}

const KILLS: u64 = 8;
const JOBS: u64 = 1200;

/// Each job refuses to run beside a copy of itself: the kernel gives a lock free when its last holder has ended.
const JOB: &str = "exec 9> lock-{}; flock -n 9 || echo {} >> copies
echo {} >> ran; sleep 0.0{}";

fn start_or_resume(place: &Place) -> Child {
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
    let mut child = start_or_resume(&place);
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
            child = start_or_resume(&place);
        } else {
            let workers = workers(&place);
            let last = workers.len().saturating_sub(3);
            let worker = workers[last + random.below((workers.len() - last) as u64) as usize];
            // The number of one that has ended may be that of another process.
            if marked("nodes-crash").contains(&worker) {
                kill(worker, "KILL");
            }
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

const BATCHES: u64 = 6;

/// The options of a batch, and its jobs as lines of JSON.
struct Batch {
    options: Vec<&'static str>,
    jobs: String,
}

impl Batch {
    fn of(random: &mut Random) -> Batch {
        let mut options = vec!["--jsonl", "--from", "jobs", "--keep-order", "--max-output", "100k"];
        if random.one_in(3) {
            options.push("--tag");
        }
        if random.one_in(3) {
            options.extend(["--retries", "2", "--retry-delay", "1ms"]);
        }
        let mut jobs = String::new();
        for number in 0..4 + random.below(16) {
            let mut job = job(random, number);
            if random.one_in(4) && number > 0 {
                job.insert("after".to_owned(), json!([format!("job{}", random.below(number))]));
            }
            let _ = writeln!(jobs, "{}", Value::Object(job));
        }
        Batch { options, jobs }
    }

    /// Runs it in a directory of its own, and returns all that is the same wherever it runs.
    fn run(
        &self,
        batch_on: impl FnOnce(&Place, &[&str]) -> Command,
    ) -> (Option<i32>, Vec<u8>, Vec<String>) {
        let place = Place::new();
        place.write("jobs", &self.jobs);
        place.write("input", "text of a file\n");
        std::fs::create_dir(place.path("folder")).unwrap();
        let log: &[&str] = &["--log", "run.db"];
        let mut command = batch_on(&place, &[&self.options[..], log].concat());
        let output = command.output().unwrap();
        let ends = ends(&place, "run.db", &output);
        (output.status.code(), output.stdout, ends)
    }
}

/// Returns a job whose end and output depend on nothing but itself.
fn job(random: &mut Random, number: u64) -> Map<String, Value> {
    let mut job = Map::new();
    let mut set = |name: &str, value: Value| drop(job.insert(name.to_owned(), value));
    set("id", json!(format!("job{number}")));
    let shell = |script: &str| json!(["sh", "-c", script, "x"]);
    match random.below(14) {
        0 => set("argv", json!(["true"])),
        1 => set("argv", shell(&format!("exit {}", random.below(256)))),
        2 => set("argv", shell(&format!("kill -{} $$", random.pick(&["9", "15", "1", "6", "10"])))),
        3 => set(
            "argv",
            json!([
                "printf",
                "%s|",
                random.pick(&["", " ", "a b", "'", "\"", "\\", "é\n", "*", "-n"]),
                "end"
            ]),
        ),
        4 => set("argv", shell(&format!("seq {}; echo error >&2", random.below(12_000)))),
        5 => set("argv", shell(&format!("seq {} >&2; exit 1", random.below(50)))),
        6 => {
            set("argv", json!(["cat"]));
            set("stdin", json!("line\n".repeat(random.below(20_000) as usize)));
        }
        7 => {
            set("argv", json!(["cat"]));
            set("stdin_file", json!(random.pick(&["input", "missing"])));
        }
        8 => {
            set("argv", shell("echo \"${A-unset} ${HOME-unset}\""));
            set("env", json!({"A": random.pick(&["", "1", "a b"]), "HOME": null}));
        }
        9 => {
            set("argv", shell("basename \"$PWD\""));
            set("cwd", json!(random.pick(&["folder", "/", "missing"])));
        }
        10 => {
            set("argv", json!(["sleep", "600"]));
            set("timeout", json!(0.05));
        }
        11 => set("argv", json!([random.pick(&["no-such-program", "./input", "/"])])),
        // Succeeds in a later attempt.
        12 => {
            set("retries", json!(random.below(4)));
            let script =
                format!("echo >> tries-{number}; [ $(wc -l < tries-{number}) -ge 3 ] && echo done");
            set("argv", shell(&script));
        }
        _ => set("argv", shell("(echo from a child; sleep 0.01; echo late) & wait; echo parent")),
    }
    if random.one_in(6) {
        set("cpus", json!(2));
    }
    job
}

/// Compares random batches here and elsewhere.
fn check(name: &str, batch_on: impl Fn(&Place, &[&str]) -> Command) {
    let count = random::number("PIPEWRIGHT_TEST_BATCHES").unwrap_or(BATCHES);
    let _watchdog = Watchdog::start(120 + 30 * count);
    let seed = random::seed(19);
    for number in 0..count {
        let batch = Batch::of(&mut Random::of(seed.wrapping_add(number)));
        let here = batch.run(|place, args| {
            place.tool(&[&["batch", "--progress", "none", "-j4"], args].concat())
        });
        let there = batch.run(&batch_on);
        let seed = seed.wrapping_add(number);
        assert_eq!(
            (here.0, &here.2),
            (there.0, &there.2),
            "{name}, seed {seed}: {}",
            batch.jobs.chars().take(3000).collect::<String>()
        );
        assert!(here.1 == there.1, "{name}, seed {seed}: the outputs differ");
    }
}

#[test]
fn random_batches_end_on_nodes_as_they_do_here() {
    check("via", |place, args| batch_on(place, &nodes(2), args));
}

#[test]
fn random_batches_end_over_ssh_as_they_do_here() {
    let Some(sshd) = Sshd::start() else { return };
    check("ssh", |place, args| batch_on(place, &sshd.nodes(place, 2), args));
}

#[test]
fn random_batches_end_on_slurm_as_they_do_here() {
    let Some(_cluster) = Cluster::take(3600) else { return };
    check("slurm", |place, args| on_slurm(place, 2, args));
    until_released();
}

#[test]
fn a_once_job_that_waits_for_room_on_its_node_has_not_begun() {
    let _watchdog = Watchdog::start(150);
    let place = Place::new();
    let node = r#"sh -c 'ulimit -n 40; exec "$@"' sh"#;
    let nodes = ["-j20", "--worker-path", TOOL, "--via", node].map(ToOwned::to_owned);
    let script = "echo {} >> ran; until [ -e end ]; do sleep 0.05; done";
    let numbers: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let mut args = vec!["--once", "--log", "run.db", "--", "sh", "-c", script, ":::"];
    args.extend(numbers.iter().map(String::as_str));
    let mut tool = batch_on(&place, &nodes, &args).spawn().unwrap();
    let noted =
        || place.rows("run.db", "SELECT number FROM running JOIN jobs ON jobs.id = running.job");
    let mut last = 0;
    until("those that run are noted, and no others", || {
        let ran = place.lines("ran").len();
        let is_steady = ran > 0 && ran == std::mem::replace(&mut last, ran);
        is_steady && noted().is_none_or(|rows| rows.len() == ran)
    });
    assert!(last < 20, "there is room for all");
    place.write("end", "");
    assert!(tool.wait().unwrap().success());
    assert_eq!(sorted(&place.lines("ran").join("\n")), sorted(&numbers.join("\n")));
}
