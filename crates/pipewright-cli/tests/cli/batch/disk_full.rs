//! Disks that become full while a batch runs: that of the log, of the outputs, and of the reports.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::super::Watchdog;
use super::{Place, err, pace};

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
        command.args([&format!("batch::disk_full::{test}"), "--exact", "--nocapture"]);
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
const JOB: &str =
    "echo start{} >> ran; [ {} != 1 ] || until [ -e end ]; do sleep 0.05; done; echo end{} >> ran";
const JOBS: usize = 250;

fn job_words(place: &Place, options: &[&str]) -> Command {
    let long = "x".repeat(3000);
    place.write("jobs", &(1..=JOBS).map(|number| format!("{number}\n")).collect::<String>());
    let base = ["batch", "--progress", "none", "-j2", "--log", "small/run.db", "--from", "jobs"];
    place.tool(&[&base, options, &["--", "sh", "-c", JOB, &long]].concat())
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
            let options = ["-j2", "--no-output", "--output-dir", "small/out"];
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
        let options = ["-j2", "--no-output", "--output-dir", "small/out", "--resume", "run.db"];
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
