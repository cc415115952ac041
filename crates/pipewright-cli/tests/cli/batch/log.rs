//! Logs, batches that are resumed, also with nothing but their log, and one runner for one log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};

use super::{Place, err, note, out, refused, sorted};
use crate::Watchdog;
use crate::trees::until;

#[test]
fn failed_jobs_run_again_only_if_asked() {
    let place = Place::new();
    place.write("fail-a", "");
    assert_eq!(note(&place, &[], &["a", "b"]).status.code(), Some(123));
    fs::remove_file(place.path("fail-a")).unwrap();
    assert_eq!(note(&place, &["--resume"], &["a", "b"]).status.code(), Some(123));
    assert_eq!(place.lines("ran"), ["a", "b"]);
    let again = note(&place, &["--resume", "--retry-failed"], &["a", "b"]);
    assert_eq!(
        (again.status.code(), place.lines("ran")),
        (Some(0), ["a", "a", "b"].map(str::to_owned).to_vec())
    );
}

#[test]
fn what_a_halted_batch_did_not_run_runs_when_it_is_resumed() {
    let place = Place::new();
    place.write("fail-a", "");
    let halted = note(&place, &["-j1", "--halt=soon,fail=1"], &["a", "b", "c"]);
    assert_eq!((halted.status.code(), place.read("ran")), (Some(123), "a\n".to_owned()));
    assert_eq!(note(&place, &["--resume"], &["a", "b", "c"]).status.code(), Some(123));
    assert_eq!(place.lines("ran"), ["a", "b", "c"]);
}

#[test]
fn a_log_needs_a_directory() {
    let place = Place::new();
    let output = place.batch_of("a\n", &["--log", "no/such/run.db", "echo"]);
    refused(&output, &["cannot create log", "no/such/run.db", "its directory does not exist"]);
}

#[test]
fn a_log_is_continued_only_if_asked_and_only_if_it_is_one() {
    let place = Place::new();
    note(&place, &[], &["a"]);
    refused(&note(&place, &[], &["b"]), &["run.db", "exists", "--resume"]);
    place.write("run.db", "some other file\n");
    refused(&note(&place, &[], &["b"]), &["run.db", "exists"]);
    refused(&note(&place, &["--resume"], &["b"]), &["run.db", "is not the log of a batch"]);
    assert_eq!(place.read("run.db"), "some other file\n");
    fs::remove_file(place.path("run.db")).unwrap();
    if place.rows("run.db", "create table own (a)").is_some() {
        refused(&note(&place, &["--resume"], &["b"]), &["run.db", "is not the log of a batch"]);
        assert_eq!(place.rows("run.db", "select name from sqlite_master").unwrap(), ["own"]);
    }
    assert_eq!(place.read("ran"), "a\n");
}

#[test]
fn one_line_begins_a_batch_and_continues_it() {
    let place = Place::new();
    let line = || note(&place, &["--resume"], &["a", "b"]);
    let first = line();
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    assert!(err(&first).contains("run.db\" is new"), "{}", err(&first));
    place.write("fail-c", "");
    let second = line();
    assert!(err(&second).contains("run 2 of this batch"), "{}", err(&second));
    assert!(!err(&second).contains("is new"), "{}", err(&second));
    assert_eq!((second.status.code(), place.lines("ran").len()), (Some(0), 2));
    // Without an input nothing can begin.
    refused(&place.batch(&["--resume", "other.db"]), &["other.db", "does not exist"]);
    assert!(!place.path("other.db").exists());
    let lost = place.batch(&["--log", "no/such.db", "--resume", "true", ":::", "a"]);
    refused(&lost, &["its directory does not exist"]);
}

#[test]
fn neither_a_finished_log_nor_its_reader_leaves_files_but_that_of_the_lock() {
    let place = Place::new();
    let beside = || {
        let names = fs::read_dir(place.path("")).unwrap().map(|it| it.unwrap().file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        sorted(&names.filter(|name| name.starts_with("run.db")).collect::<Vec<_>>().join("\n"))
    };
    note(&place, &[], &["a"]);
    assert_eq!(beside(), ["run.db", "run.db-lock"]);
    for args in [&["jobs", "run.db"][..], &["jobs", "run.db", "--html", "page.html"]] {
        assert!(place.tool(args).status().unwrap().success());
        assert_eq!(beside(), ["run.db", "run.db-lock"], "{args:?}");
    }
    // One that reads to the end of the batch.
    let args = ["batch", "-q", "--log", "run.db", "--resume", "--", "sh", "-c", WAIT, ":::", "x"];
    let mut batch = place.tool(&args).spawn().unwrap();
    until("the job runs", || place.read("ran").contains("x"));
    let mut reader =
        place.tool(&["jobs", "run.db", "--follow"]).stdout(Stdio::null()).spawn().unwrap();
    until("the log is read", || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", reader.id()));
        maps.map_or(true, |maps| maps.contains("run.db-shm"))
    });
    place.write("go", "");
    assert!(batch.wait().unwrap().success());
    assert!(reader.wait().unwrap().success());
    assert_eq!(beside(), ["run.db", "run.db-lock"]);
    // What a killed run has left is for the runner that resumes it.
    fs::remove_file(place.path("go")).unwrap();
    let args = ["batch", "-q", "--log", "run.db", "--resume", "--", "sh", "-c", WAIT, ":::", "y"];
    let mut killed = place.tool(&args).spawn().unwrap();
    until("the job runs", || place.read("ran").contains("y"));
    until("the log has it", || {
        out(&place.tool(&["jobs", "run.db"]).output().unwrap()).contains("running")
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let wal = fs::read(place.path("run.db-wal")).unwrap();
    assert!(place.tool(&["jobs", "run.db"]).stdout(Stdio::null()).status().unwrap().success());
    assert!(!wal.is_empty() && fs::read(place.path("run.db-wal")).unwrap() == wal);
}

#[test]
fn an_interrupted_job_that_runs_once_is_unknown_until_it_is_asked_for() {
    for once in [true, false] {
        let place = Place::new();
        let script = "echo {} >> ran; test -e end || sleep 600";
        let options: &[&str] = if once { &["--once"] } else { &[] };
        let words = ["--log", "run.db", "--", "sh", "-c", script, ":::", "1"];
        let args = [&["batch", "--quiet"], options, &words[..]].concat();
        let mut killed = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
        until("the job runs", || place.read("ran") == "1\n");
        killed.kill().unwrap();
        killed.wait().unwrap();
        place.write("end", "");
        let output = place.batch(&[options, &["--resume"], &words[..]].concat());
        if !once {
            assert_eq!((output.status.code(), place.read("ran")), (Some(0), "1\n1\n".to_owned()));
            continue;
        }
        assert_eq!((output.status.code(), place.read("ran")), (Some(123), "1\n".to_owned()));
        assert!(err(&output).contains("job 1 unknown"), "{}", err(&output));
        assert!(err(&output).contains("1 unknown in"), "{}", err(&output));
        let listed = place.tool(&["jobs", "run.db", "--state", "unknown"]).output().unwrap();
        assert!(out(&listed).contains("echo 1 >> ran"), "{}", out(&listed));
        let asked = place.batch(&[&["--once", "--resume", "--rerun-unknown"], &words[..]].concat());
        assert_eq!((asked.status.code(), place.read("ran")), (Some(0), "1\n1\n".to_owned()));
    }
}

/// Notes its number and its value in a file, and waits for a file `go`.
const WAIT: &str = "echo $PIPEWRIGHT_JOB {} {#} >> ran; until [ -e go ]; do sleep 0.05; done";

/// Starts a batch whose jobs wait, and kills it when two of them run and the log satisfies a condition.
fn killed(place: &Place, input: &str, options: &[&str], condition: impl Fn(&str) -> bool) {
    let args = [&["batch", "--quiet", "-j2", "--log", "run.db"], options];
    let mut command = place.tool(&[&args.concat()[..], &["--", "sh", "-c", WAIT]].concat());
    let mut runner: Child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut stdin = runner.stdin.take().unwrap();
    // Ignored: a batch with another input does not read.
    let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    until("two jobs run", || place.read("ran").lines().count() == 2);
    until("the log is as wanted", || {
        let summary = place.tool(&["jobs", "--summary", "run.db"]).output().unwrap();
        condition(out(&summary))
    });
    runner.kill().unwrap();
    runner.wait().unwrap();
    place.write("go", "");
}

fn numbers(last: u32) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

#[test]
fn a_killed_batch_is_resumed_without_its_input() {
    let place = Place::new();
    // A pipe, which nobody can read again.
    killed(&place, &numbers(30), &[], |log| log.contains("30 jobs: 2 started, 28 waiting"));
    for name in ["run.db", "run.db-wal"] {
        let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others can read {name}");
    }
    let interrupted = place.lines("ran");
    let planned = place.batch(&["--resume", "--dry-run", "run.db"]);
    assert_eq!(out(&planned).lines().count(), 30, "{}", err(&planned));
    assert_eq!(place.lines("ran"), interrupted);

    let resumed = place.batch(&["-j3", "--resume", "run.db"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    assert!(err(&resumed).contains("30 ok, 0 failed"), "{}", err(&resumed));
    let expected = (1..=30).map(|number| format!("{number} {number} {number}"));
    let expected = expected.chain(interrupted).collect::<Vec<_>>().join("\n");
    assert_eq!(place.lines("ran"), sorted(&expected));

    // Nothing is left, for either form.
    let again = place.batch(&["--resume", "run.db"]);
    assert!(err(&again).contains("30 ok (30 before)"), "{}", err(&again));
    let with_input = place.tool(&["batch", "--log", "run.db", "--resume", "--", "sh", "-c", WAIT]);
    place.write("input", &numbers(30));
    let mut with_input = with_input;
    let with_input = with_input.stdin(fs::File::open(place.path("input")).unwrap()).output();
    let with_input = with_input.unwrap();
    assert!(err(&with_input).contains("30 ok (30 before)"), "{}", err(&with_input));
    assert_eq!(place.lines("ran").len(), 32);
}

#[test]
fn options_can_follow_the_log() {
    let place = Place::new();
    let first = place.batch(&["--log", "run.db", "--", "test", "1", "=", ":::", "1", "2"]);
    assert_eq!(first.status.code(), Some(123), "{}", err(&first));
    let planned = place.batch(&["--resume", "run.db", "--retry-failed", "--dry-run"]);
    assert_eq!(out(&planned), "test 1 = 2\n", "{}", err(&planned));
    let between = ["--resume", "-j1", "run.db", "--retry-failed", "--env", "A=b"];
    let again = place.batch(&between);
    assert!(err(&again).contains("1 ok (1 before), 1 failed"), "{}", err(&again));

    // An error is that of the option.
    refused(&place.batch(&["--resume", "run.db", "--no-such"]), &["--no-such"]);
    refused(&place.batch(&["--resume", "run.db", "-j", "0"]), &["-j"]);
    // What can be a command is none of these options.
    for words in [
        &["echo", "--log", "run.db"][..],
        &["--", "run.db", "--dry-run"],
        &["run.db", "--dry-run", "--", "echo"],
        &["run.db", "--dry-run", "echo"],
    ] {
        let output = place.batch(&[&["--resume"], words].concat());
        refused(&output, &["is not expected", "--resume [OPTIONS] LOG"]);
    }
}

#[test]
fn a_job_that_runs_once_stays_unknown() {
    let place = Place::new();
    killed(&place, &numbers(3), &["--once"], |log| log.contains("2 started, 1 waiting"));
    let resumed = place.batch(&["--resume", "run.db"]);
    assert_eq!(resumed.status.code(), Some(123), "{}", err(&resumed));
    assert!(err(&resumed).contains("1 ok, 0 failed, 0 skipped, 2 unknown"), "{}", err(&resumed));
    assert_eq!(place.lines("ran").len(), 3);
    let planned = place.batch(&["--resume", "--dry-run", "run.db"]);
    assert_eq!(out(&planned), "");
    let asked = place.batch(&["--resume", "--rerun-unknown", "run.db"]);
    assert_eq!((asked.status.code(), place.lines("ran").len()), (Some(0), 5), "{}", err(&asked));
}

#[test]
fn jobs_that_were_not_read_are_never_forgotten() {
    let place = Place::new();
    killed(&place, &numbers(5000), &[], |log| log.contains("2 jobs"));
    let output = place.batch(&["--resume", "run.db"]);
    refused(&output, &["run.db", "not read to its end", "--log", "--resume", "sh -c"]);
    refused(&place.batch(&["--resume", "--dry-run", "run.db"]), &["not read to its end"]);
    assert_eq!(place.lines("ran").len(), 2);
    // The advice works.
    let advised =
        place.batch_of(&numbers(5), &["--log", "run.db", "--resume", "--", "sh", "-c", WAIT]);
    assert_eq!(advised.status.code(), Some(0), "{}", err(&advised));
    assert!(place.batch(&["--resume", "run.db"]).status.success());
}

#[test]
fn a_file_or_a_list_is_read_again_if_jobs_are_missing() {
    let values = numbers(600);
    for from_file in [true, false] {
        let place = Place::new();
        place.write("list", &values);
        let mut list = vec![":::"];
        list.extend(values.lines());
        if from_file {
            killed(&place, "", &["--from", "list"], |log| log.contains("2 jobs"));
        } else {
            let words =
                [&["batch", "--quiet", "-j2", "--log", "run.db", "sh", "-c", WAIT], &list[..]];
            let mut runner = place.tool(&words.concat()).stdout(Stdio::null()).spawn().unwrap();
            until("two jobs run", || place.read("ran").lines().count() == 2);
            runner.kill().unwrap();
            runner.wait().unwrap();
            place.write("go", "");
        }
        let resumed = place.batch(&["--resume", "run.db"]);
        assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
        assert!(err(&resumed).contains("input is read again"), "{}", err(&resumed));
        assert!(err(&resumed).contains("600 ok, 0 failed"), "{}", err(&resumed));
        let again = place.batch(&["--resume", "run.db"]);
        assert!(err(&again).contains("600 ok (600 before)"), "{}", err(&again));
        assert!(!err(&again).contains("input is read again"), "{}", err(&again));
    }
}

#[test]
fn failed_jobs_and_their_dependents_run_if_asked() {
    let place = Place::new();
    let jobs = [
        r#"{"id":"a","shell":"echo a >> ran"}"#,
        r#"{"id":"b","shell":"echo b >> ran; test -e ok","after":["a"]}"#,
        r#"{"id":"c","shell":"echo c >> ran","after":["b","a"]}"#,
    ];
    place.write("jobs", &jobs.join("\n"));
    let first = place.batch(&["--jsonl", "--from", "jobs", "--log", "run.db"]);
    assert!(err(&first).contains("1 ok, 1 failed, 1 skipped"), "{}", err(&first));
    place.write("ok", "");
    let kept = place.batch(&["--resume", "run.db"]);
    assert_eq!(kept.status.code(), Some(123));
    assert!(err(&kept).contains("1 ok (1 before), 1 failed, 1 skipped"), "{}", err(&kept));
    let planned = place.batch(&["--resume", "--retry-failed", "--dry-run", "run.db"]);
    assert_eq!(out(&planned).lines().count(), 2, "{}", out(&planned));
    let retried = place.batch(&["--resume", "--retry-failed", "run.db"]);
    assert_eq!(retried.status.code(), Some(0), "{}", err(&retried));
    assert!(err(&retried).contains("3 ok (1 before)"), "{}", err(&retried));
    assert_eq!(place.read("ran"), "a\nb\nb\nc\n");
}

#[test]
fn a_job_runs_again_with_its_bytes_its_environment_and_its_input() {
    let place = Place::new();
    fs::create_dir(place.path("sub")).unwrap();
    place.write("input", "from a file");
    let script = r#"{ printf %s "$1" "$WORD" "${HOME-none}"; cat; } > out-$2; test -e ok"#;
    let script = serde_json::Value::from(script);
    let word = r#"{"hex":"610a27ff"}"#;
    let jobs = [
        format!(
            "{{\"argv\":[\"sh\",\"-c\",{script},\"sh\",{word},\"1\"],\"cwd\":\"sub\",\
              \"env\":{{\"WORD\":{word},\"HOME\":null}},\"stdin\":{word}}}"
        ),
        format!(r#"{{"argv":["sh","-c",{script},"sh","a'\n b","2"],"stdin_file":"input"}}"#),
    ];
    place.write("jobs", &jobs.join("\n"));
    let first = place.batch(&["--jsonl", "--from", "jobs", "--log", "run.db"]);
    assert_eq!(first.status.code(), Some(123), "{}", err(&first));
    let read = |name: &str| fs::read(place.path(name)).unwrap();
    let written = [read("sub/out-1"), read("out-2")];
    assert_eq!(written[0], b"a\n'\xffa\n'\xffnonea\n'\xff");
    fs::remove_file(place.path("sub/out-1")).unwrap();
    fs::remove_file(place.path("out-2")).unwrap();
    fs::remove_file(place.path("jobs")).unwrap();
    place.write("ok", "");
    place.write("sub/ok", "");
    let retried = place.batch(&["--resume", "--retry-failed", "run.db"]);
    assert_eq!(retried.status.code(), Some(0), "{}", err(&retried));
    assert_eq!([read("sub/out-1"), read("out-2")], written);
}

#[test]
fn tags_and_order_are_those_of_the_input() {
    let place = Place::new();
    let script = "sleep 0.{}; test -e ok && echo {#}";
    let words = ["--tag", "--log", "run.db", "sh", "-c", script, ":::", "3", "2", "1", "0"];
    assert_eq!(place.batch(&words).status.code(), Some(123));
    // The second one is removed, so its number is missing.
    let words = ["--tag", "--log", "run.db", "--resume", "sh", "-c", script, ":::", "3", "1", "0"];
    assert_eq!(place.batch(&words).status.code(), Some(123));
    place.write("ok", "");
    let resumed = place.batch(&["-j4", "-k", "--tag", "--resume", "--retry-failed", "run.db"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    assert_eq!(out(&resumed), "3\t1\n1\t2\n0\t3\n");
    assert!(err(&resumed).contains("3 ok, 0 failed"), "{}", err(&resumed));
}

#[test]
fn a_job_that_was_removed_from_the_input_does_not_run() {
    let place = Place::new();
    let script = "echo {} >> ran; test -e ok";
    let run = |options: &[&str], values: &[&str]| {
        let words = ["--log", "run.db", "sh", "-c", script, ":::"];
        place.batch(&[options, &words[..], values].concat())
    };
    run(&[], &["a", "b"]);
    run(&["--resume"], &["b"]);
    place.write("ok", "");
    let resumed = place.batch(&["--resume", "--retry-failed", "run.db"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", err(&resumed));
    assert_eq!(place.read("ran").lines().filter(|line| *line == "a").count(), 1);
    // It is part of the batch again as soon as an input has it.
    run(&["--resume"], &["a", "b"]);
    let resumed = place.batch(&["--resume", "--retry-failed", "run.db"]);
    assert!(err(&resumed).contains("2 ok (1 before)"), "{}", err(&resumed));
}

#[test]
fn a_log_of_version_1_is_resumed_with_its_input() {
    let place = Place::new();
    let words = ["--log", "run.db", "sh", "-c", "echo {} >> ran; test -e ok", ":::", "a", "b"];
    place.batch(&words);
    let older = [
        "DROP TRIGGER jobs_end",
        "ALTER TABLE running DROP COLUMN pid",
        "ALTER TABLE running DROP COLUMN pid_start",
        "ALTER TABLE runs DROP COLUMN command",
        "ALTER TABLE runs DROP COLUMN id",
        "ALTER TABLE attempts DROP COLUMN node",
        "ALTER TABLE runs DROP COLUMN remote",
        "ALTER TABLE jobs DROP COLUMN settings",
        "ALTER TABLE jobs DROP COLUMN removed",
        "ALTER TABLE runs DROP COLUMN jobs",
        "ALTER TABLE runs DROP COLUMN input",
        "PRAGMA user_version = 1",
    ];
    if older.iter().any(|change| place.rows("run.db", change).is_none()) {
        return;
    }
    place.write("ok", "");
    let alone = place.batch(&["--resume", "--retry-failed", "run.db"]);
    refused(&alone, &["run.db", "older version", "settings", "--log", "::: a b"]);
    assert_eq!(place.lines("ran"), ["a", "b"]);
    fs::remove_file(place.path("ok")).unwrap();
    let resumed = place.batch(&[&["--resume", "--retry-failed"], &words[..]].concat());
    assert!(err(&resumed).contains("0 ok, 2 failed"), "{}", err(&resumed));
    // Now the log has everything.
    place.write("ok", "");
    let alone = place.batch(&["--resume", "--retry-failed", "run.db"]);
    assert_eq!(alone.status.code(), Some(0), "{}", err(&alone));
    assert_eq!(place.lines("ran"), ["a", "a", "a", "b", "b", "b"]);
}

#[test]
fn neither_form_is_taken_for_the_other() {
    let place = Place::new();
    place.batch(&["--log", "run.db", "touch", ":::", "a"]);
    let forms = ["--resume [OPTIONS] LOG", "--log LOG --resume"];
    refused(&place.batch(&["--resume"]), &forms);
    refused(&place.batch(&["--resume", "run.db", "touch"]), &[&forms[..], &["\"touch\""]].concat());
    refused(
        &place.batch(&["--resume", "run.db", "-j4", "touch"]),
        &[&forms[..], &["-j4"]].concat(),
    );
    refused(
        &place.batch(&["--resume", "--from", "run.db", "x"]),
        &[&forms[..], &["--from"]].concat(),
    );
    // A command that is a file.
    place.write("command", "#!/bin/sh\ntouch started\n");
    refused(&place.batch_of("x\n", &["--resume", "./command"]), &["is not the log of a batch"]);
    refused(&place.batch(&["--resume", "missing"]), &["missing", "does not exist"]);
    assert!(!place.path("started").exists() && !place.path("missing").exists());
    // With --log, the log is never the command, and lines are commands.
    let lines = place.batch_of("touch b\n", &["--log", "run.db", "--resume"]);
    assert_eq!((lines.status.code(), place.path("b").exists()), (Some(0), true), "{}", err(&lines));
    // Words may be relative paths, so the directory has to be the same.
    fs::create_dir(place.path("sub")).unwrap();
    let elsewhere = place.sh("cd sub && $PW batch --resume ../run.db");
    refused(&elsewhere, &["run.db", "change to it"]);
}

#[test]
fn a_second_runner_is_refused_with_the_pid_of_the_first() {
    let place = Place::new();
    let wait = "touch ran; until [ -e end ]; do sleep 0.05; done";
    let args = ["batch", "--quiet", "--log", "run.db", "--", "sh", "-c", wait, ":::", "1"];
    let mut first = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
    until("the job runs", || place.path("ran").exists());
    let second = place.batch(&["--log", "run.db", "--resume", "--", "touch", ":::", "second"]);
    place.write("end", "");
    refused(&second, &[&format!("process {} ", first.id()), "run.db"]);
    assert!(first.wait().unwrap().success());
    assert!(!place.path("second").exists());
    let third = place.batch(&["--log", "run.db", "--resume", "--", "touch", ":::", "third"]);
    assert_eq!(third.status.code(), Some(0), "{}", err(&third));
}

#[test]
fn of_many_runners_that_start_at_once_one_runs_each_job() {
    let _watchdog = Watchdog::start(120);
    for round in 0..3 {
        let place = Place::new();
        // Each job waits until all runners have had their chance.
        let wait = "echo {} >> ran; until [ -e end ]; do sleep 0.05; done";
        let words = ["--", "sh", "-c", wait, ":::", "1", "2", "3"];
        // In the first rounds they make the log, in the last one they resume it.
        let options: &[&str] = if round < 2 { &[] } else { &["--resume"] };
        if round == 2 {
            place.batch(&["--log", "run.db", "--", "true", ":::", "0"]);
        }
        let args = [&["batch", "--quiet", "-j3", "--log", "run.db"], options, &words[..]].concat();
        let start = |_| {
            let mut tool = place.tool(&args);
            tool.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut runners: Vec<_> = (0..6).map(start).collect();
        until("all runners but one are refused", || {
            let ended = |child: &mut std::process::Child| child.try_wait().unwrap().is_some();
            runners.iter_mut().filter_map(|child| ended(child).then_some(())).count() == 5
        });
        place.write("end", "");
        let outputs: Vec<_> =
            runners.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let codes: Vec<_> = outputs.iter().map(|output| output.status.code()).collect();
        assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
        for output in outputs.iter().filter(|output| output.status.code() != Some(0)) {
            refused(output, &["run.db"]);
        }
        assert_eq!(place.lines("ran"), ["1", "2", "3"], "round {round}");
    }
}

#[test]
fn a_log_with_another_name_is_the_same_log() {
    let place = Place::new();
    let wait = "touch ran; until [ -e end ]; do sleep 0.05; done";
    let args = ["batch", "--quiet", "--log", "run.db", "--", "sh", "-c", wait, ":::", "1"];
    let mut first = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
    until("the job runs", || place.path("ran").exists());
    std::fs::create_dir(place.path("sub")).unwrap();
    std::os::unix::fs::symlink("run.db", place.path("link.db")).unwrap();
    for name in ["./run.db", "sub/../run.db", "link.db"] {
        let second = place.batch(&["--log", name, "--resume", "--", "touch", ":::", "second"]);
        refused(&second, &[&format!("process {} ", first.id())]);
    }
    place.write("end", "");
    assert!(first.wait().unwrap().success());
    assert!(!place.path("second").exists());
}
