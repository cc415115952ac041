//! The output of jobs: together, in order if asked, complete, unchanged; and what was not printed when a batch died.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use super::{Place, err, out, pace, sorted};
use crate::Watchdog;
use crate::trees::until;

#[test]
fn tags_name_the_job_of_each_line() {
    let place = Place::new();
    let words = ["--", "sh", "-c", "echo x; echo {}y; echo e >&2", ":::", "a", "b c"];
    for mode in [&["--tag"][..], &["--tag", "--line-buffer"], &["--tag", "--keep-order"]] {
        let output = place.batch(&[mode, &["--quiet"], &words[..]].concat());
        assert_eq!(sorted(out(&output)), ["a\tay", "a\tx", "b c\tb cy", "b c\tx"], "{mode:?}");
        assert_eq!(sorted(err(&output)), ["a\te", "b c\te"], "{mode:?}");
    }
}

#[test]
fn lines_are_printed_as_they_arrive_if_asked() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    // No job ends before the first line of each has been printed.
    let script = "echo {}1; until [ -e end ]; do sleep 0.05; done; echo {}2";
    let args = ["batch", "--quiet", "-j2", "--line-buffer", "--", "sh", "-c", script, ":::", "a"];
    let mut tool = place.tool(&[&args[..], &["b"]].concat());
    let mut tool = tool.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut first = [lines.next().unwrap(), lines.next().unwrap()];
    first.sort();
    assert_eq!(first, ["a1", "b1"]);
    place.write("end", "");
    let mut rest: Vec<String> = lines.collect();
    rest.sort();
    assert_eq!(rest, ["a2", "b2"]);
    assert!(tool.wait().unwrap().success());
}

#[test]
fn each_job_has_a_folder_in_the_output_directory() {
    let place = Place::new();
    let script = "echo out{}; echo err{} >&2; exit {}";
    let args = ["--output-dir", "all/out", "--", "sh", "-c", script, ":::", "0", "7"];
    assert_eq!(place.batch(&args).status.code(), Some(123));
    let folders = std::fs::read_dir(place.path("all/out")).unwrap();
    let mut folders: Vec<_> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert_eq!(folders.len(), 2, "{folders:?}");
    for (folder, code) in folders.iter().zip(["0", "7"]) {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("stdout"), format!("out{code}\n"));
        assert_eq!(read("stderr"), format!("err{code}\n"));
        let facts: serde_json::Value = serde_json::from_str(&read("job.json")).unwrap();
        assert_eq!(facts["exit_code"].to_string(), code);
        assert_eq!(facts["outcome"], "exited");
    }
}

#[test]
fn output_beyond_the_cap_is_left_out_and_does_not_stop_the_job() {
    let place = Place::new();
    let script = "seq 100000; seq 100000 >&2; touch ended";
    let output =
        place.batch(&["--quiet", "--keep-output", "10", "--", "sh", "-c", script, ":::", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!((out(&output), err(&output)), ("1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n"));
    assert!(place.path("ended").exists());
}

#[test]
fn both_ends_of_an_output_can_be_kept_with_a_line_about_the_rest() {
    let place = Place::new();
    std::fs::create_dir(place.path("rest")).unwrap();
    let script = "seq 1000; seq 3 >&2";
    let keep = ["--keep-output", "5+10", "--spill", "rest"];
    let words = ["--output-dir", "all", "--", "sh", "-c", script, ":::", "1"];
    let output = place.batch(&[&["--quiet"], &keep[..], &words].concat());
    assert_eq!((output.status.code(), err(&output)), (Some(0), "1\n2\n3\n"));
    let printed = out(&output);
    let said = printed.lines().nth(2).unwrap();
    assert!(said.starts_with("[3880 bytes, 996 lines left out: all is in rest/stdout-"), "{said}");
    assert_eq!(printed, format!("1\n2\n{said}\n999\n1000\n"));
    let file = said.trim_end_matches(']').rsplit(' ').next().unwrap();
    assert_eq!(std::fs::metadata(place.path(file)).unwrap().len(), 3893);
    assert_eq!(std::fs::read_dir(place.path("rest")).unwrap().count(), 1);
    // The files of the job have the same.
    let folder = std::fs::read_dir(place.path("all")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(folder.join("stdout")).unwrap(), printed);
    let facts = std::fs::read_to_string(folder.join("job.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    assert_eq!((&facts["truncated"], &facts["stdout_bytes"]), (&true.into(), &3893.into()));

    let output = place.batch(&["--keep-output", "5", "--spill", "rest", "--", "true", ":::", "1"]);
    assert!(output.status.code() == Some(125) && err(&output).contains("--keep-output HEAD+TAIL"));
}

#[test]
fn a_folder_for_all_of_an_output_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let keep = ["--quiet", "--keep-output", "5+5", "--spill", "all"];
    let run = |verb: &[&str], script: &str, input: &[&str]| {
        let words = [verb, &keep, &["--", "sh", "-c", script], input].concat();
        place.tool(&words).output().unwrap()
    };
    let verbs: [(&[&str], &[&str]); 2] = [(&["run"], &[]), (&["batch"], &[":::", "1"])];
    for (verb, input) in verbs {
        // Before anything starts.
        let output = run(verb, "touch begun", input);
        assert_eq!(output.status.code(), Some(125), "{}", err(&output));
        assert!(err(&output).contains("\"all\"") && !place.path("begun").exists());
        // Later: a success is none without its output.
        std::fs::create_dir(place.path("all")).unwrap();
        let output = run(verb, "rmdir all; seq 1000", input);
        assert_eq!(output.status.code(), Some(125), "{verb:?}: {}", err(&output));
        assert!(err(&output).contains("\"all\"") && out(&output).starts_with("1\n2\n["));
    }
}

/// Prints three lines slowly enough that jobs would mix them.
const SCRIPT: &str = "for i in 1 2 3; do echo {}$i; sleep 0.02; done";

#[test]
fn the_output_of_a_job_stays_together_and_in_order_if_asked() {
    let _watchdog = Watchdog::start(120);
    let place = Place::new();
    let output = place.batch(&["-j3", "--", "sh", "-c", SCRIPT, ":::", "a", "b", "c"]);
    let lines: Vec<&str> = out(&output).lines().collect();
    for group in lines.chunks(3) {
        let name = &group[0][..1];
        assert_eq!(group, ["1", "2", "3"].map(|i| format!("{name}{i}")), "{lines:?}");
    }
    assert_eq!(lines.len(), 9);
    // The first job ends last.
    let script =
        "if [ {} = 1 ]; then until [ -e end ]; do sleep 0.05; done; else touch end; fi; echo {}";
    let output = place.batch(&["-j2", "--keep-order", "--", "sh", "-c", script, ":::", "1", "2"]);
    assert_eq!(out(&output), "1\n2\n");
    // Without the option, a job is printed when it has ended.
    std::fs::remove_file(place.path("end")).unwrap();
    let script = "if [ {} = 1 ]; then until [ -e end ]; do sleep 0.05; done; fi; echo {}";
    let words = ["batch", "--quiet", "-j2", "--", "sh", "-c", script, ":::", "1", "2"];
    let mut tool = place.tool(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "2");
    place.write("end", "");
    assert_eq!(lines.collect::<Vec<_>>(), ["1"]);
    assert!(tool.wait().unwrap().success());
}

#[test]
fn the_id_of_a_job_is_in_messages_and_every_report() {
    let place = Place::new();
    place.write(
        "jobs",
        "{\"id\":\"good\",\"argv\":[\"true\"]}\n{\"id\":\"bad\",\"argv\":[\"false\"]}\n{\"argv\":[\"true\"]}\n",
    );
    let reports = ["--events", "events", "--trace", "trace", "--html", "page", "--log", "log"];
    let words = [&["-j1", "--jsonl", "--from", "jobs"], &reports[..]].concat();
    let output = place.batch(&words);
    assert!(
        err(&output).contains("pipewright: job 2 [bad] failed: exit code 1\n"),
        "{}",
        err(&output)
    );
    let events = place.read("events");
    for event in ["started", "ended", "settled"] {
        let of_event = format!("\"event\":\"{event}\"");
        let lines = events.lines().filter(|line| line.contains(&of_event));
        let ids: Vec<_> = lines
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone())
            .collect();
        assert_eq!(ids, ["good".into(), "bad".into(), serde_json::Value::Null], "{event}");
    }
    assert!(place.read("trace").contains("\"[bad] false\""), "{}", place.read("trace"));
    assert!(place.read("page").contains("[bad] false"));
    let listed = place.tool(&["jobs", "log", "--html", "later"]).output().unwrap();
    assert!(listed.status.success() && place.read("later").contains("[bad] false"));
}

#[test]
fn the_tag_of_a_line_for_the_shell_is_what_was_typed() {
    let place = Place::new();
    let words = ["-q", "-k", "--tag", "--shell"];
    let output = place.batch_of("echo 'a  b' | tr a x\n", &words[1..]);
    assert_eq!(out(&output), "echo 'a  b' | tr a x\tx  b\n");
}

#[test]
fn the_output_before_a_kill_is_printed_and_bytes_are_not_changed() {
    let place = Place::new();
    let script = r"printf 'a\377\376b'; kill -9 $$";
    let output = place.batch(&["--", "sh", "-c", script, ":::", "1"]);
    assert_eq!(output.stdout, b"a\xff\xfeb");
    let silent = place.batch(&["--show-output=never", "--", "echo", ":::", "1"]);
    assert_eq!((out(&silent), silent.status.code()), ("", Some(0)));
}

#[test]
fn large_outputs_of_many_jobs_arrive_whole_in_every_mode() {
    let _watchdog = Watchdog::start(300);
    let place = Place::new();
    // Together they are more than what is kept in memory. Each line names its job and has its number.
    let script = "i=0; while [ $i -lt 20 ]; do seq -f 'job {} %.0f' 1 20000; i=$((i+1)); done";
    let mut words = vec!["--", "sh", "-c", script, ":::"];
    words.extend(["1", "2", "3", "4", "5", "6", "7", "8"]);
    for options in [&["-j8"][..], &["-j8", "--keep-order"], &["-j8", "--line-buffer"]] {
        let output = place.batch(&[options, &["--quiet"], &words[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", err(&output));
        let mut next = [0_u64; 9];
        let mut changes = 0;
        let mut last = 0;
        for line in out(&output).lines() {
            let mut parts = line.split(' ').skip(1).map(|part| part.parse::<u64>().unwrap());
            let (job, number) = (parts.next().unwrap(), parts.next().unwrap());
            let expected = next[job as usize] % 20_000 + 1;
            assert_eq!(number, expected, "{options:?}: job {job}");
            next[job as usize] += 1;
            changes += usize::from(job != last);
            last = job;
        }
        assert_eq!(next[1..], [400_000; 8], "{options:?}");
        let is_grouped = !options.contains(&"--line-buffer");
        assert!(!is_grouped || changes == 8, "{options:?}: {changes} groups");
    }
}

fn kill(pid: u32, signal: &str) {
    let killed = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

const SUCCEEDED: &str = "select number from jobs where state = 'succeeded'";

/// Returns the files beside the log.
fn kept(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("run.db-output-")).collect()
}

/// Returns true if a log can be looked at.
fn has_sqlite() -> bool {
    let has = Command::new("sqlite3").arg("--version").output().is_ok();
    if !has {
        pace::skipped(pace::Need::Program("sqlite3"), "it reads the log");
    }
    has
}

#[test]
fn output_that_waits_for_its_turn_survives_a_kill() {
    let _watchdog = Watchdog::start(100);
    if !has_sqlite() {
        return;
    }
    let place = Place::new();
    let script = "echo {} >> ran; [ {} != 1 ] || until [ -e go ]; do sleep 0.05; done; echo out {}";
    let args =
        ["--log", "run.db", "-k", "-j4", "--", "sh", "-c", script, ":::", "1", "2", "3", "4"];
    let mut command = place.tool(&[&["batch", "--progress", "none"], &args[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let are_done = || place.rows("run.db", SUCCEEDED).is_none_or(|rows| rows.len() == 3);
    until("three jobs are done", || place.lines("ran").len() == 4 && are_done());
    let files = kept(&place);
    assert_eq!(files.len(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(place.path(&files[0])).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    child.kill().unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    child.wait().unwrap();
    assert_eq!(printed, "");
    place.write("go", "");
    let resumed = place.batch(&["--resume", "-k", "run.db"]);
    assert!(resumed.status.success(), "{}", err(&resumed));
    assert_eq!(out(&resumed), "out 2\nout 3\nout 4\nout 1\n");
    assert!(
        err(&resumed).contains("3 jobs of an earlier run was not printed"),
        "{}",
        err(&resumed)
    );
    // Only the first one ran again, and nothing is left.
    assert_eq!(place.lines("ran"), ["1", "1", "2", "3", "4"]);
    assert_eq!(kept(&place), [""; 0]);
    assert_eq!(out(&place.batch(&["--resume", "-k", "run.db"])), "");
}

/// A job of 20,000 lines and one more, which notes that it has run.
const LONG: &str = "seq -f '{} %g' 20000; echo '{} end'; echo {} >> ran";

/// Starts twenty of them, whose output nobody reads, and waits until some are done.
fn long_jobs(place: &Place, options: &[&str], stderr: Stdio) -> Child {
    let list: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let own = ["batch", "--progress", "none", "--log", "run.db", "-j2"];
    let args = [&own, options, &["--", "sh", "-c", LONG, ":::"], &list[..]].concat();
    let child = place.tool(&args).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let are_done = || place.rows("run.db", SUCCEEDED).is_none_or(|rows| rows.len() > 9);
    until("some jobs are done", || place.lines("ran").len() > 9 && are_done());
    child
}

/// Checks that one of the two outputs has each line of those jobs.
fn has_all_lines(numbers: &[String], lines: &BTreeSet<&str>) {
    for number in numbers {
        for line in (1..=20_000).map(|line| format!("{number} {line}")) {
            assert!(lines.contains(&*line), "{line}");
        }
    }
}

#[test]
fn output_that_a_slow_reader_has_not_taken_is_printed_later() {
    let _watchdog = Watchdog::start(100);
    if !has_sqlite() {
        return;
    }
    let place = Place::new();
    let mut child = long_jobs(&place, &[], Stdio::piped());
    kill(child.id(), "TERM");
    // Nobody reads until it has ended.
    until("it has ended", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert!(err(&output).contains("not printed, and will be by --resume"), "{}", err(&output));
    let done = place.rows("run.db", SUCCEEDED).unwrap_or_default();
    let resumed = place.batch(&["--resume", "run.db"]);
    assert!(resumed.status.success(), "{}", err(&resumed));
    let lines: BTreeSet<&str> = out(&output).lines().chain(out(&resumed).lines()).collect();
    has_all_lines(&done, &lines);
    assert!((1..=20).all(|number| lines.contains(&*format!("{number} end"))));
}

#[test]
fn lines_that_a_slow_reader_has_not_taken_survive_a_kill() {
    let _watchdog = Watchdog::start(100);
    if !has_sqlite() {
        return;
    }
    let place = Place::new();
    let mut child = long_jobs(&place, &["--line-buffer"], Stdio::null());
    // The log is as it was at the kill: nobody reads before.
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let done = place.rows("run.db", SUCCEEDED).unwrap_or_default();
    assert!(!out(&output).contains("\n9 end"), "the pipe had room for all");
    let resumed = place.batch(&["--resume", "--line-buffer", "run.db"]);
    assert!(resumed.status.success(), "{}", err(&resumed));
    // The line that was cut in the pipe comes again, whole.
    let lines: BTreeSet<&str> = out(&output).lines().chain(out(&resumed).lines()).collect();
    has_all_lines(&done, &lines);
    assert!(done.iter().all(|number| lines.contains(&*format!("{number} end"))));
    let again = place.lines("ran");
    for number in done {
        assert_eq!(again.iter().filter(|it| **it == number).count(), 1, "{number} ran again");
    }
    assert_eq!(kept(&place), [""; 0]);
}
