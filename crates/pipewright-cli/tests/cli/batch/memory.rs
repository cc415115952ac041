//! Memory that does not grow with the number of jobs nor with their output; the memory of jobs.
//!
//! `PIPEWRIGHT_TEST_JOBS` sets the number of jobs.

use std::fs;
use std::io::{BufWriter, Read as _, Write as _};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::super::trees::until;
use super::super::{Watchdog, random};
use super::{Place, pace};

const JOBS: usize = 20_000;
const MIB: usize = 1 << 20;

/// Returns the most memory that a process has had. `None`: it has ended.
///
/// The one in its resource usage would count the memory of this process, from before its exec.
fn peak_so_far(process: &Child) -> Option<usize> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().unwrap() << 10)
}

/// Waits for a process. Returns the most memory that it has had until shortly before its end.
fn peak(process: &mut Child) -> (usize, ExitStatus) {
    let mut peak = 0;
    loop {
        peak = peak_so_far(process).unwrap_or(peak);
        if let Some(status) = process.try_wait().unwrap() {
            assert!(peak > 0, "its memory has been read");
            return (peak, status);
        }
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Starts `batch`, without input and output.
fn start(place: &Place, args: &[&str]) -> Child {
    start_with(place, args, Stdio::null())
}

fn start_with(place: &Place, args: &[&str], stdin: Stdio) -> Child {
    let mut tool = place.tool(&[&["batch", "--progress", "none"], args].concat());
    tool.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns true, with a message, if this system does not show the memory of processes.
fn is_hidden() -> bool {
    let is_hidden = !fs::read_to_string("/proc/self/status").is_ok_and(|it| it.contains("VmHWM:"));
    if is_hidden {
        pace::skipped(pace::Need::File("/proc/self/status"), "there is no /proc here");
    }
    is_hidden
}

#[test]
fn memory_hardly_grows_with_jobs_that_are_not_started() {
    if is_hidden() {
        return;
    }
    let _watchdog = Watchdog::start(600);
    let most = random::number("PIPEWRIGHT_TEST_JOBS").map_or(JOBS, |count| count as usize);
    let log = ["--events", "events", "--log", "run.db"];
    let reports = ["--events", "events", "--trace", "trace", "--html", "page", "-k"];
    // Rows that wait for the disk are limited to 8 MiB, twice, without the overhead of their allocations.
    for (options, more) in [(&log[..], 32 * MIB), (&reports, 6 * MIB)] {
        let peak_of = |jobs: usize| {
            let place = Place::new();
            let mut tool = start_with(&place, &[&["--jsonl"], options].concat(), Stdio::piped());
            let mut input = tool.stdin.take().unwrap();
            // All others are skipped, which takes less time than a start. They come when the first one has failed:
            // until then they would wait for it, in memory.
            input.write_all(b"{\"id\":\"first\",\"argv\":[\"./no-such-program\"]}\n").unwrap();
            until("the first job has failed", || place.read("events").contains("settled"));
            let others = thread::spawn(move || {
                let mut input = BufWriter::new(input);
                for number in 2..=jobs {
                    let line = format!(r#"{{"argv":["true","{number}"],"after":["first"]}}"#);
                    writeln!(input, "{line}").unwrap();
                }
            });
            let (peak, status) = peak(&mut tool);
            others.join().unwrap();
            assert_eq!(status.code(), Some(123));
            if options == reports {
                let skipped = place.read("events").matches(r#""state":"skipped""#).count();
                assert_eq!(skipped, jobs - 1);
            }
            peak
        };
        let (few, many) = (peak_of(most / 10), peak_of(most));
        // A settled job costs its identity, for the count of equal ones, and its row in the log.
        let limit = few + more + 100 * most;
        assert!(many <= limit, "{options:?}: {few} bytes, then {many}; the limit is {limit}");
    }
}

#[test]
fn memory_does_not_grow_with_jobs_that_are_started() {
    if is_hidden() {
        return;
    }
    let _watchdog = Watchdog::start(600);
    let most = random::number("PIPEWRIGHT_TEST_JOBS").map_or(JOBS, |count| count as usize) / 20;
    let peak_of = |jobs: usize, log: &[&str]| {
        let place = Place::new();
        place.write("jobs", &(1..=jobs).map(|number| format!("{number}\n")).collect::<String>());
        let long = "x".repeat(4000);
        let options = ["-j2", "--from", "jobs", "--", "true", &long];
        let (peak, status) = peak(&mut start(&place, &[log, &options].concat()));
        assert_eq!(status.code(), Some(0));
        peak
    };
    // The command of each job has 4 kB. With a log, rows wait for the disk, as above, and SQLite has a cache.
    for (log, more) in [(&[][..], 3 * MIB), (&["--log", "run.db"], 35 * MIB)] {
        let (few, many) = (peak_of(most / 10, log), peak_of(most, log));
        let limit = few + more + 250 * most;
        assert!(many <= limit, "{log:?}: {few} bytes, then {many}; the limit is {limit}");
    }
}

/// Writes 100 MB, more than the limit, and then a file.
const WRITE: &str = "head -c 100000000 /dev/zero; touch wrote";
const WRITE_LINES: &str = "yes | head -c 100000000; touch wrote";
const LIMIT: usize = 64 * MIB;

#[test]
fn memory_does_not_grow_with_output_that_nobody_reads_yet() {
    if is_hidden() {
        return;
    }
    let _watchdog = Watchdog::start(300);
    for (option, script) in
        [("--keep-order", WRITE), ("--line-buffer", WRITE), ("--line-buffer", WRITE_LINES)]
    {
        let place = Place::new();
        let mut tool =
            place.tool(&["batch", "--quiet", option, "--", "sh", "-c", script, ":::", "1"]);
        let mut tool = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // As long as the watchdog permits: a slow machine writes that much slowly.
        while !place.path("wrote").exists() {
            assert!(tool.try_wait().unwrap().is_none(), "{option} {script}: it has ended");
            thread::park_timeout(Duration::from_millis(2));
        }
        let peak = peak_so_far(&tool).unwrap();
        assert!(peak < LIMIT, "{option} {script}: {peak} bytes");
        let mut stdout = tool.stdout.take().unwrap();
        let (mut buffer, mut bytes, mut peak) = (vec![0; MIB], 0, peak);
        loop {
            let count = stdout.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            bytes += count;
            peak = peak_so_far(&tool).unwrap_or(peak);
        }
        assert!(tool.wait().unwrap().success());
        // A line without an end gets one, so that the next line is a line.
        let expected = 100_000_000 + usize::from(option == "--line-buffer" && script == WRITE);
        assert_eq!(bytes, expected, "{option} {script}");
        assert!(peak < LIMIT, "{option} {script}: {peak} bytes");
    }
}

#[test]
fn output_beyond_the_cap_takes_neither_memory_nor_room_on_a_disk() {
    if is_hidden() {
        return;
    }
    let _watchdog = Watchdog::start(300);
    let place = Place::new();
    let options =
        ["--keep-output", "1000", "--output-dir", "all", "--", "sh", "-c", WRITE, ":::", "1"];
    let mut tool = place.tool(&[&["batch", "--quiet"][..], &options].concat());
    tool.stdout(Stdio::piped()).stderr(Stdio::null()).env("TMPDIR", place.path("no-such-folder"));
    let mut tool = tool.spawn().unwrap();
    let (peak, status) = peak(&mut tool);
    assert!(status.success() && peak < LIMIT, "{status}, {peak} bytes");
    let mut printed = Vec::new();
    tool.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
    assert_eq!(printed, [0; 1000]);
    let folder = fs::read_dir(place.path("all")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(folder.join("stdout")).unwrap().len(), 1000);
}

/// The memory of jobs: reserved, limited, and more of it after a lack of memory.
#[cfg(target_os = "linux")]
mod of_jobs {
    use super::super::{Place, err, out, pace};

    /// A job that needs some 40 MiB and prints the number of bytes that it has read.
    const HUNGRY: &str = "head -c 40M /dev/zero | tail | wc -c";

    /// Returns true, and reports it, if this machine cannot limit the memory of a job.
    fn cannot_limit(messages: &str) -> bool {
        let note = messages.lines().find(|line| line.contains("reserved, and not limited"));
        note.inspect(|note| pace::skipped(pace::Need::TreeLimits, note)).is_some()
    }

    #[test]
    fn a_job_that_runs_out_of_memory_gets_more_and_keeps_its_retries() {
        let place = Place::new();
        let jobs = format!(r#"{{"shell":"{HUNGRY}","mem":"16M..256M","retries":0}}"#);
        place.write("jobs.jsonl", &jobs);
        let script = "\"$PW\" batch --jsonl --from jobs.jsonl --log log.db --progress none";
        let output = place.sh(script);
        if cannot_limit(err(&output)) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert_eq!(out(&output).trim(), "41943040");
        let notes: Vec<&str> =
            err(&output).lines().filter(|it| it.contains("again with")).collect();
        let bytes = |mib: u64| format!("job 1: out of memory; again with {} bytes", mib << 20);
        assert!(notes.len() >= 2, "{notes:?}");
        assert!(notes[0].ends_with(&bytes(32)) && notes[1].ends_with(&bytes(64)), "{notes:?}");
        let query = "select outcome from attempts order by attempt";
        if let Some(rows) = place.rows("log.db", query) {
            assert_eq!(rows.last().map(String::as_str), Some("exited"));
            assert!(rows[..rows.len() - 1].iter().all(|outcome| outcome == "out_of_memory"));
            assert_eq!(rows.len(), notes.len() + 1);
        }
    }

    #[test]
    fn a_job_over_its_memory_fails_as_out_of_memory_though_it_exits_with_0() {
        let place = Place::new();
        let jobs = format!(
            "{{\"shell\":\"{HUNGRY}\",\"mem\":\"16M\"}}\n{{\"shell\":\"echo fine\",\"mem\":\"16M\"}}"
        );
        place.write("jobs.jsonl", &jobs);
        let output =
            place.sh("\"$PW\" batch --jsonl --from jobs.jsonl --keep-order --progress none");
        if cannot_limit(err(&output)) {
            return;
        }
        assert_eq!(output.status.code(), Some(123), "{}", err(&output));
        assert!(err(&output).contains("job 1 failed: out of memory"), "{}", err(&output));
        assert!(out(&output).ends_with("fine\n"), "{}", out(&output));
    }

    #[test]
    fn jobs_that_do_not_fit_into_the_free_memory_together_run_one_after_the_other() {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        // Of all memory: how much is free changes from the look here to that of the batch.
        let all = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = all.and_then(|all| all.split_whitespace().next()?.parse::<u64>().ok());
        let Some(kib) = kib else {
            return pace::skipped(
                pace::Need::File("/proc/meminfo"),
                "this system does not say how much there is",
            );
        };
        let place = Place::new();
        // Fails if another job runs.
        let script = "mkdir running && sleep 0.2 && rmdir running";
        let job = format!("{{\"shell\":\"{script}\",\"mem\":\"{}\"}}\n", kib * 6 / 10 * 1024);
        place.write("jobs.jsonl", &job.repeat(3));
        let output = place.sh("\"$PW\" batch -j3 --jsonl --from jobs.jsonl --progress none");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }

    #[test]
    fn a_range_of_memory_that_makes_no_sense_is_refused() {
        let place = Place::new();
        for mem in ["2G..1G", "2G..", "..2G", "x..2G"] {
            let output =
                place.batch_of(&format!(r#"{{"shell":"true","mem":"{mem}"}}"#), &["--jsonl"]);
            super::super::refused(&output, &["\"mem\"", "2G..16G"]);
        }
    }

    #[test]
    fn memory_is_learned_from_the_log_of_an_earlier_run() {
        let place = Place::new();
        let script = "\"$PW\" batch -k --log monday.db --progress none -- echo ::: a b && \
                      \"$PW\" batch --learn monday.db --log tuesday.db --progress none -k -- echo ::: a b c";
        let output = place.sh(script);
        assert_eq!(
            (output.status.code(), out(&output)),
            (Some(0), "a\nb\na\nb\nc\n"),
            "{output:?}"
        );
        let output = place.batch_of("a", &["--learn", "no.db", "--", "echo"]);
        super::super::refused(&output, &["\"", "no.db"]);
    }
}
