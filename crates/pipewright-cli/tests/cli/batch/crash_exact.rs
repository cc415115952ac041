//! Runners that are killed at random moments, and resumed: each job ends exactly once in the log, and never runs beside
//! a copy of itself. Disks that become full while a batch runs: that of the log, of the outputs, and of the reports.
//!
//! `PIPEWRIGHT_TEST_KILLS` sets the number of kills, `PIPEWRIGHT_TEST_SEED` repeats the choices of a run that failed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Place, err, pace, version};
use crate::Watchdog;
use crate::random::{self, Random};
use crate::trees::{MARK, mark, marked, named_below, until};

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

/// The options that belong to a log which is there.
const OF_RESUME: [&str; 2] = ["--retry-failed", "--rerun-unknown"];

fn run(place: &Place, name: &str, options: &[&str], job: &str) -> Child {
    let mut args = vec!["batch", "--progress", "none", "-j3", "--log", "run.db", "--from", "jobs"];
    args.extend(options.iter().filter(|option| !OF_RESUME.contains(option)));
    if place.path("run.db").exists() {
        args.push("--resume");
        args.extend(options.iter().filter(|option| OF_RESUME.contains(option)));
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

/// Waits until each supervisor has a guard: it gets its name by exec, which it may do after the jobs have started.
fn until_guarded(tool: &Child) {
    until("each supervisor has its guard", || {
        helpers(tool, "guard").len() == helpers(tool, "commands").len()
    });
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
        // On a fast machine all jobs would be done before enough was killed.
        let moment = Instant::now() + Duration::from_micros(random.below(20_000));
        while Instant::now() < moment && place.read("ran").lines().count() < before + some + 8 {
            thread::park_timeout(Duration::from_micros(500));
        }
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
    // A supervisor that is killed while it starts a job leaves the job unknown.
    let Some((place, jobs, seed)) = crash("batch-crash", &OF_RESUME) else { return };
    let last = run(&place, "batch-crash", &OF_RESUME, JOB).wait().unwrap();
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
    until_guarded(&tool);
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
fn a_resumed_batch_ends_the_rest_of_a_group_whose_leader_has_ended() {
    if pace::lacks_proc() {
        return;
    }
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    place.write("jobs", "1\n");
    // The kernel kills the shell with the tool, and nothing kills what the shell waits for.
    let job = "echo $$ >> ran; [ -e resumed ] || { sleep 600; true; }";
    let (name, options) = ("batch-rest-of-group", ["--contain", "group"]);
    let mut tool = run(&place, name, &options, job);
    let is_logged = || {
        place
            .rows("run.db", "select pid from running where pid is not null")
            .map(|it| it.len() == 1)
    };
    until("the job runs", || place.lines("ran").len() == 1);
    if is_logged().is_none() {
        tool.kill().unwrap();
        tool.wait().unwrap();
        return;
    }
    until("its process is in the log", || is_logged() == Some(true));
    let sleeps = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
    };
    until("it sleeps", || marked(name).iter().any(sleeps));
    tool.kill().unwrap();
    tool.wait().unwrap();
    let shell = std::path::PathBuf::from("/proc").join(&place.lines("ran")[0]);
    until("its shell has ended", || !shell.exists());
    assert!(marked(name).iter().all(sleeps), "nothing is left to be ended");
    place.write("resumed", "");
    let last = run(&place, name, &options, job).wait().unwrap();
    let messages = place.read("messages");
    assert_eq!(last.code(), Some(0), "{messages}");
    assert!(messages.contains("a process of an earlier run was alive"), "{messages}");
    assert_eq!((place.lines("ran").len(), marked(name)), (2, vec![]), "{messages}");
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

/// Is set in the processes that may mount.
const INSIDE: &str = "PIPEWRIGHT_TEST_NAMESPACE";
/// The exit code of a process that cannot mount.
const CANNOT_MOUNT: i32 = 77;

/// The size of the disk. The write-ahead log of a batch of these tests has room.
const DISK_KILOBYTES: usize = 32 << 10;

/// A place with a disk of its own of 32 MiB, `small`.
struct SmallDisk(Place);

impl SmallDisk {
    /// Mounts one, or ends the process.
    fn mount() -> SmallDisk {
        let place = Place::new();
        fs::create_dir(place.path("small")).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_KILOBYTES}k"), "none"])
            .arg(place.path("small"));
        if !mount.output().is_ok_and(|it| it.status.success()) {
            std::process::exit(CANNOT_MOUNT);
        }
        SmallDisk(place)
    }

    /// Leaves room for that many kilobytes.
    fn leave(&self, kilobytes: usize) {
        self.0.write("small/filler", &"x".repeat((DISK_KILOBYTES - kilobytes) << 10));
    }

    fn make_room(&self) {
        fs::remove_file(self.0.path("small/filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Ignored: it goes with the process. The folder would stay.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("small")).status();
    }
}

/// Runs a test of this suite in a process that may mount.
fn on_small_disk(test: &str, body: impl FnOnce(&SmallDisk)) {
    if std::env::var_os(INSIDE).is_some() {
        let _watchdog = Watchdog::start(100);
        return body(&SmallDisk::mount());
    }
    let _watchdog = Watchdog::start(120);
    if Command::new("unshare").arg("--version").output().is_err() {
        return pace::skipped(pace::Need::Program("unshare"), "there is no unshare here");
    }
    // Root needs no namespace of users, which some machines refuse.
    for options in [&["--user", "--map-root-user", "--mount"][..], &["--mount"]] {
        let mut command = Command::new("unshare");
        command.args(options).arg(std::env::current_exe().unwrap());
        command.args([&format!("batch::crash_exact::{test}"), "--exact", "--nocapture"]);
        let output = command.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("\nrunning 1 test") && output.status.code() != Some(CANNOT_MOUNT) {
            for line in err(&output).lines().filter(|line| line.starts_with("SKIPPED ")) {
                eprintln!("{line}");
            }
            assert!(text.contains("1 passed"), "{text}\n{}", err(&output));
            return;
        }
    }
    pace::skipped(pace::Need::Mount, "no filesystem can be mounted here");
}

/// The first job runs until there is a file `end`, and each job makes the log larger by its words.
const LONG_JOB: &str =
    "echo start{} >> ran; [ {} != 1 ] || until [ -e end ]; do sleep 0.05; done; echo end{} >> ran";
const JOBS: usize = 250;

fn job_words(place: &Place, options: &[&str]) -> Command {
    let long = "x".repeat(3000);
    place.write("jobs", &(1..=JOBS).map(|number| format!("{number}\n")).collect::<String>());
    let base = ["batch", "--progress", "none", "-j2", "--log", "small/run.db", "--from", "jobs"];
    place.tool(&[&base, options, &["--", "sh", "-c", LONG_JOB, &long]].concat())
}

/// Runs a batch until its log cannot be written, lets the first job end after `act`, and returns its messages.
fn fill_log(disk: &SmallDisk, act: impl FnOnce()) -> Output {
    let SmallDisk(place) = disk;
    disk.leave(600);
    let mut tool = job_words(place, &["--events", "events"]);
    tool.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tool = tool.spawn().unwrap();
    let mut stderr = BufReader::new(tool.stderr.take().unwrap());
    let mut text = Vec::new();
    stderr.read_until(b'\n', &mut text).unwrap();
    let first = String::from_utf8_lossy(&text).into_owned();
    for words in ["cannot write log", "small/run.db", "the disk is full", "no job is started"] {
        assert!(first.contains(words), "{first}");
    }
    assert!(!place.lines("ran").contains(&"end1".to_owned()), "the first job runs");
    act();
    place.write("end", "");
    std::io::Read::read_to_end(&mut stderr, &mut text).unwrap();
    let status = tool.wait().unwrap();
    Output { status, stdout: Vec::new(), stderr: text }
}

/// Returns the events of a kind of the last batch, after the first one of another kind.
fn events_after(place: &Place, first: &str, kind: &str) -> usize {
    let events = place.read("events");
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let after = events.skip_while(|event| event["event"] != first);
    after.filter(|event| event["event"] == kind).count()
}

/// Returns the number of times that each job has started and has ended.
fn runs(place: &Place) -> Vec<[usize; 2]> {
    let ran = place.read("ran");
    let count = |word: String| ran.lines().filter(|line| **line == word).count();
    (1..=JOBS).map(|job| [count(format!("start{job}")), count(format!("end{job}"))]).collect()
}

#[test]
fn a_batch_whose_log_has_no_room_ends_and_is_resumed() {
    on_small_disk("a_batch_whose_log_has_no_room_ends_and_is_resumed", |disk| {
        let SmallDisk(place) = disk;
        let output = fill_log(disk, || ());
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        assert!(err(&output).contains("no more jobs start: the log cannot be written"));
        assert!(err(&output).contains(" not run in "), "{}", err(&output));
        // Nothing was started after the failure, and what ran has ended.
        assert_eq!(events_after(place, "note", "started"), 0);
        let before = runs(place);
        assert!(before.iter().all(|[starts, ends]| starts == ends && *starts <= 1), "{before:?}");
        assert_eq!(before[0], [1, 1]);
        assert!(before.iter().filter(|job| job[0] == 0).count() > JOBS / 2, "{before:?}");
        disk.make_room();
        let recorded = "select number from jobs where state = 'succeeded'";
        let recorded = place.rows("small/run.db", recorded);
        let output = job_words(place, &["--resume"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let after = runs(place);
        assert!(after.iter().all(|[_, ends]| *ends >= 1), "{after:?}");
        // Ends that could not be written are unknown to the log: those jobs run again.
        let Some(recorded) = recorded else { return };
        assert!(!recorded.is_empty());
        for number in recorded {
            assert_eq!(after[number.parse::<usize>().unwrap() - 1], [1, 1], "job {number}");
        }
        let states = "select state, count(*) from jobs group by state";
        assert_eq!(place.rows("small/run.db", states).unwrap(), [format!("succeeded|{JOBS}")]);
    });
}

#[test]
fn a_batch_goes_on_when_its_log_gets_room_in_time() {
    on_small_disk("a_batch_goes_on_when_its_log_gets_room_in_time", |disk| {
        let SmallDisk(place) = disk;
        let output = fill_log(disk, || disk.make_room());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(err(&output).contains("the log can be written again"), "{}", err(&output));
        assert!(runs(place).iter().all(|job| *job == [1, 1]), "{:?}", runs(place));
        let states = "select state, count(*) from jobs group by state";
        if let Some(states) = place.rows("small/run.db", states) {
            assert_eq!(states, [format!("succeeded|{JOBS}")]);
        }
    });
}

/// Writes 100 KB to stdout.
const WRITE: &str = "head -c 100000 /dev/zero; echo {} >> ran";

#[test]
fn jobs_go_on_when_their_output_has_no_room_and_the_batch_fails() {
    on_small_disk("jobs_go_on_when_their_output_has_no_room_and_the_batch_fails", |disk| {
        let SmallDisk(place) = disk;
        let list: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let words = [&["--", "sh", "-c", WRITE, ":::"], &list[..]].concat();
        disk.leave(1000);
        for more in [&["--log", "run.db"][..], &["--quiet"]] {
            let options = ["-j2", "--show-output=never", "--output-dir", "small/out"];
            let output = place.batch(&[&options, more, &words[..]].concat());
            assert_eq!(output.status.code(), Some(125), "{}", err(&output));
            let last = err(&output).lines().rev().find(|line| line.contains(" is incomplete: "));
            let last = last.unwrap_or_else(|| panic!("{}", err(&output)));
            for words in ["output of 1", " jobs is incomplete: ", "small/out/", "No space left"] {
                assert!(last.contains(words), "{last}");
            }
            assert_eq!(place.read("ran").lines().count(), 20);
            fs::remove_file(place.path("ran")).unwrap();
            fs::remove_dir_all(place.path("small/out")).unwrap();
        }
        // A job whose output was not stored is not done.
        disk.make_room();
        let states = "select state from jobs group by state";
        if let Some(rows) = place.rows("run.db", states) {
            assert_eq!(rows, ["interrupted", "succeeded"]);
        }
        let options =
            ["-j2", "--show-output=never", "--output-dir", "small/out", "--resume", "run.db"];
        let output = place.batch(&options);
        assert!(output.status.success(), "{}", err(&output));
        if let Some(rows) = place.rows("run.db", states) {
            assert_eq!(rows, ["succeeded"]);
        }
    });
}

#[test]
fn jobs_go_on_when_temporary_files_have_no_room_and_the_batch_fails() {
    on_small_disk("jobs_go_on_when_temporary_files_have_no_room_and_the_batch_fails", |disk| {
        let SmallDisk(place) = disk;
        let script = "head -c 20000000 /dev/zero; echo {} >> ran";
        let args = ["batch", "--quiet", "-j2", "--", "sh", "-c", script, ":::", "1", "2", "3"];
        disk.leave(100);
        let output = place.tool(&args).env("TMPDIR", place.path("small")).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        let words = "output of 3 jobs is incomplete: cannot store stdout in a temporary file";
        assert!(err(&output).contains(words), "{}", err(&output));
        assert_eq!(place.lines("ran"), ["1", "2", "3"]);
        assert!(output.stdout.len() < 60_000_000);
    });
}

#[test]
fn jobs_go_on_when_a_report_has_no_room_and_the_batch_fails() {
    on_small_disk("jobs_go_on_when_a_report_has_no_room_and_the_batch_fails", |disk| {
        let SmallDisk(place) = disk;
        for option in ["--events", "--trace", "--html"] {
            disk.leave(8);
            let words = ["-j2", "--from", "jobs", option, "small/report", "--", "sh", "-c"];
            place.write("jobs", &(1..=100).map(|number| format!("{number}\n")).collect::<String>());
            let output = place.batch(&[&words[..], &["echo {} >> ran"]].concat());
            assert_eq!(output.status.code(), Some(125), "{option}: {}", err(&output));
            let lines: Vec<&str> = err(&output).lines().collect();
            assert_eq!(lines.len(), 2, "{option}: {lines:?}");
            assert!(lines[0].contains("small/report") && lines[0].contains("No space left"));
            assert!(lines[1].contains("100 ok"), "{option}: {lines:?}");
            assert_eq!(place.read("ran").lines().count(), 100, "{option}");
            fs::remove_file(place.path("ran")).unwrap();
            fs::remove_file(place.path("small/report")).unwrap();
        }
    });
}
