//! Runners that are killed at random moments, and resumed: each job ends exactly once in the log, and never runs beside a
//! copy of itself.
//!
//! `PIPEWRIGHT_TEST_KILLS` sets the number of kills, `PIPEWRIGHT_TEST_SEED` repeats the choices of a run that failed.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use super::super::Watchdog;
use super::super::random::{self, Random};
use super::super::trees::{MARK, mark, marked, named_below, until};
use super::{Place, pace, version};

const KILLS: u64 = 40;

/// Each job refuses to run beside a copy of itself: the kernel gives a lock free when its last holder has ended.
const JOB: &str = "exec 9> lock-{}; flock -n 9 || echo {} >> copies
echo {} >> ran; sleep 0.00{}";

/// The processes of the tool that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Tool,
    /// The parent of the jobs of a slot.
    Supervisor,
    /// The process that takes over if a supervisor ends.
    Guard,
    /// All of them, so that nobody ends the jobs.
    All,
}

const TARGETS: [&Target; 6] = [
    &Target::Tool,
    &Target::Tool,
    &Target::Tool,
    &Target::Supervisor,
    &Target::Guard,
    &Target::All,
];

fn run(place: &Place, name: &str, options: &[&str], job: &str) -> Child {
    let mut args = vec!["batch", "--progress", "none", "-j3", "--log", "run.db", "--from", "jobs"];
    args.extend(options.iter().filter(|option| **option != "--retry-failed"));
    if place.path("run.db").exists() {
        args.push("--resume");
        args.extend(options.iter().filter(|option| **option == "--retry-failed"));
    }
    args.extend(["--", "sh", "-c", job]);
    let mut command: Command = place.tool(&args);
    // A pipe that nobody reads would be full of messages about unknown jobs, and hold the tool.
    let messages = fs::File::create(place.path("messages")).unwrap();
    command.env(MARK, mark(name)).stdout(Stdio::null()).stderr(messages);
    command.spawn().unwrap()
}

/// Returns the supervisors or the guards of a tool that runs or is not reaped.
fn helpers(tool: &Child, role: &str) -> Vec<u32> {
    let has_role = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(role.as_bytes())
    };
    named_below(tool.id(), "pw-supervisor").into_iter().filter(has_role).collect()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // Ignored: it may have ended.
    let _ = kill_process(pid, signal);
}

/// Kills all processes of a tool but its jobs. Nobody sees the end of another one: all are stopped before.
fn kill_all(tool: &Child) {
    signal(tool.id(), Signal::STOP);
    let helpers = [helpers(tool, "guard"), helpers(tool, "commands")].concat();
    for end in [Signal::STOP, Signal::KILL] {
        helpers.iter().for_each(|pid| signal(*pid, end));
    }
    signal(tool.id(), Signal::KILL);
}

/// Kills processes of the tool. Returns true if the tool itself was killed.
fn kill(tool: &Child, target: Target, random: &mut Random) -> bool {
    let role = match target {
        Target::Tool => {
            signal(tool.id(), Signal::KILL);
            return true;
        }
        Target::All => {
            kill_all(tool);
            return true;
        }
        Target::Supervisor => "commands",
        Target::Guard => "guard",
    };
    let helpers = helpers(tool, role);
    // None before the first job, and none on a machine that has no supervisor.
    if !helpers.is_empty() {
        signal(helpers[random.below(helpers.len() as u64) as usize], Signal::KILL);
    }
    false
}

/// Kills at random moments, and runs the rest. Returns the place, the number of jobs and the seed.
fn crash(name: &str, options: &[&str]) -> Option<(Place, usize, u64)> {
    if pace::lacks_proc() {
        return None;
    }
    if Command::new("flock").arg("--version").output().is_err() {
        pace::skipped(pace::Need::Program("flock"), "there is no flock here");
        return None;
    }
    let kills = random::number("PIPEWRIGHT_TEST_KILLS").unwrap_or(KILLS);
    let jobs = kills as usize * 12 + 50;
    let place = Place::new();
    place.write("jobs", &(1..=jobs).map(|number| format!("{number}\n")).collect::<String>());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = random::seed(now);
    // For the failures that do not name it.
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let mut tool = run(&place, name, options, JOB);
    let (mut killed, mut killed_tools) = (0, 0);
    while killed < kills {
        let before = place.read("ran").lines().count();
        // After some jobs, and at any moment of the next ones. The jobs of a run that ends sooner are all done.
        let some = random.below(8) as usize;
        until("some jobs have started", || {
            place.read("ran").lines().count() >= before + some || tool.try_wait().unwrap().is_some()
        });
        thread::park_timeout(Duration::from_micros(random.below(20_000)));
        if let Some(status) = tool.try_wait().unwrap() {
            assert!(
                matches!(status.code(), Some(0 | 123)),
                "seed {seed}: {}",
                place.read("messages")
            );
            break;
        }
        killed += 1;
        if kill(&tool, *random.pick(&TARGETS), &mut random) {
            killed_tools += 1;
            tool.wait().unwrap();
            // At once: what still ends, or does not, is the matter of the next run.
            tool = run(&place, name, options, JOB);
        }
    }
    let code = tool.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 123)), "seed {seed}: {}", place.read("messages"));
    assert!(
        killed >= kills / 2 && killed_tools >= kills / 4,
        "seed {seed}: {killed}, {killed_tools}"
    );
    Some((place, jobs, seed))
}

/// Returns the only number of a query.
fn count(place: &Place, query: &str) -> usize {
    place.rows("run.db", query).unwrap()[0].parse().unwrap()
}

#[test]
fn every_job_of_killed_runners_succeeds_exactly_once_in_the_log() {
    let _watchdog = Watchdog::start(3600);
    let options = ["--retry-failed"];
    let Some((place, jobs, seed)) = crash("batch-crash", &options) else { return };
    let last = run(&place, "batch-crash", &options, JOB).wait().unwrap();
    assert_eq!(last.code(), Some(0), "seed {seed}: {}", place.read("messages"));
    assert_eq!(place.read("copies"), "", "seed {seed}: two copies were alive");
    until("no process is left", || marked("batch-crash").is_empty());
    let mut ran = place.lines("ran");
    ran.dedup();
    assert_eq!(ran.len(), jobs, "seed {seed}: a job has not run");
    let ok = "where outcome = 'exited' and code = 0";
    let twice = format!("select job from attempts {ok} group by job having count(*) > 1");
    let Some(rows) = place.rows("run.db", &twice) else { return };
    assert_eq!(rows, [""; 0], "seed {seed}: succeeded twice");
    let again = "select a.job from attempts a join attempts b on b.job = a.job and b.run > a.run
        where a.outcome = 'exited' and a.code = 0";
    assert_eq!(place.rows("run.db", again).unwrap(), [""; 0], "seed {seed}: ran after its success");
    for query in [
        &format!("select count(distinct job) from attempts {ok}"),
        "select count(*) from jobs where state = 'succeeded'",
        "select count(*) from jobs",
    ] {
        assert_eq!(count(&place, query), jobs, "seed {seed}: {query}");
    }
    assert_eq!(count(&place, "select count(*) from running"), 0, "seed {seed}");
    assert!(count(&place, "select count(*) from attempts where outcome = 'interrupted'") > 0);
}

#[test]
fn no_job_that_runs_once_is_started_twice() {
    let _watchdog = Watchdog::start(3600);
    let options = ["--once"];
    let Some((place, jobs, seed)) = crash("batch-crash-once", &options) else { return };
    let last = run(&place, "batch-crash-once", &options, JOB).wait().unwrap();
    assert_eq!(place.read("copies"), "", "seed {seed}: two copies were alive");
    let ran = place.lines("ran");
    let mut distinct = ran.clone();
    distinct.dedup();
    assert_eq!(ran, distinct, "seed {seed}: a job was started twice");
    if place.rows("run.db", "select 1").is_none() {
        return;
    }
    let of =
        |state: &str| count(&place, &format!("select count(*) from jobs where state = '{state}'"));
    let (unknown, failed) = (of("unknown"), of("failed"));
    assert_eq!(of("succeeded") + unknown + failed, jobs, "seed {seed}");
    assert!(unknown > 0, "seed {seed}: no job was interrupted");
    // Jobs with a known end have run. Those that are unknown may have, and so may those whose supervisor was killed.
    assert!(distinct.len() <= jobs && distinct.len() + unknown + failed >= jobs, "seed {seed}");
    assert_eq!(last.code(), Some(123), "seed {seed}: {}", place.read("messages"));
}

#[test]
fn a_resumed_batch_ends_what_no_supervisor_has_ended() {
    if pace::lacks_proc() {
        return;
    }
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    place.write("jobs", "1\n2\n");
    // The first copies go on in sessions of their own, and hold the locks.
    let job = "exec 9> lock-{}; flock -n 9 || echo {} >> copies; echo {} >> ran
[ -e resumed ] || exec setsid --wait sh -c 'sleep 600; :'";
    if Command::new("flock").arg("--version").output().is_err() {
        return pace::skipped(pace::Need::Program("flock"), "there is no flock here");
    }
    let name = "batch-survivors";
    let mut tool = run(&place, name, &[], job);
    until("both jobs run", || place.lines("ran") == ["1", "2"]);
    let is_sleep = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
    };
    until("both sleep", || marked(name).iter().filter(|pid| is_sleep(pid)).count() == 2);
    let sleeping: Vec<u32> = marked(name).into_iter().filter(is_sleep).collect();
    kill_all(&tool);
    tool.wait().unwrap();
    // Without this, the test would see the supervisor's work.
    let left = marked(name);
    assert!(sleeping.iter().all(|pid| left.contains(pid)), "{sleeping:?} of {left:?}");
    place.write("resumed", "");
    let last = run(&place, name, &[], job).wait().unwrap();
    let messages = place.read("messages");
    assert_eq!(last.code(), Some(0), "{messages}");
    assert!(messages.contains("processes of an earlier run were alive"), "{messages}");
    assert_eq!(
        (place.lines("ran"), place.read("copies")),
        (["1", "1", "2", "2"].map(String::from).to_vec(), String::new())
    );
    assert_eq!(marked(name), [0; 0]);
}

#[test]
fn a_resumed_batch_waits_for_a_job_that_takes_long_to_exit() {
    if pace::lacks_proc() {
        return;
    }
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    place.write("jobs", "1\n");
    // The kernel frees its memory before its lock, and its environment is gone by then.
    let job = "exec 9> lock-{}; flock -n 9 || echo {} >> copies; echo {} >> ran; [ -e resumed ] ||
exec perl -e '$x = \"x\" x 700_000_000; open F, \">large\"; close F; sleep 600'";
    for program in ["flock", "perl"] {
        if version(program).is_none() {
            return;
        }
    }
    let mut tool = run(&place, "batch-exit", &[], job);
    until("the job is large", || place.path("large").exists());
    kill_all(&tool);
    tool.wait().unwrap();
    place.write("resumed", "");
    let last = run(&place, "batch-exit", &[], job).wait().unwrap();
    assert_eq!(last.code(), Some(0), "{}", place.read("messages"));
    assert_eq!((place.read("ran"), place.read("copies")), ("1\n1\n".to_owned(), String::new()));
}
