//! The tool on Windows; the suites for Unix cover the rest.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Place, err, out, pace, pipewright};

fn run_cmd(options: &[&str], line: &str) -> Output {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "cmd", "/c", line]);
    pipewright(&args).output().expect("the tool starts")
}

fn report_in(output: &Output) -> Value {
    let report = out(output).lines().find(|line| line.starts_with('{')).unwrap();
    serde_json::from_str(report).unwrap()
}

#[track_caller]
fn until(what: &str, fact: impl Fn() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < pace::millis(60_000), "waited in vain until {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Returns true if no process has the file open.
fn is_free(path: &Path) -> bool {
    OpenOptions::new().write(true).share_mode(0).open(path).is_ok()
}

#[test]
fn the_code_of_the_command_is_the_code_of_the_tool() {
    for code in [0, 1, 42, 255] {
        let output = run_cmd(&["--quiet"], &format!("exit {code}"));
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
    }
    // A status of the kernel, which exceeds the signed numbers.
    let output = run_cmd(&["--quiet"], "exit -1073741819");
    assert_eq!(output.status, std::process::ExitStatus::from_raw(0xC000_0005));
}

#[test]
fn a_timeout_ends_the_tree_and_is_reported() {
    let line = "echo hi & ping -n 60 127.0.0.1 >nul";
    let output = run_cmd(&["--timeout", "2s", "--report", "-"], line);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    assert!(out(&output).starts_with("hi"), "{}", out(&output));
    let report = report_in(&output);
    assert_eq!((&report["outcome"], &report["containment"]), (&"timed_out".into(), &"job".into()));
    assert_eq!(report["signal"], Value::Null);
    assert!(report["elapsed_seconds"].as_f64().unwrap() >= 2.0);
}

#[test]
fn limits_watch_output_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = path.to_str().unwrap();
    let output = run_cmd(&["--max-output", "1000", "--stdout", file], "echo hi");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), "hi");
    let output =
        run_cmd(&["--max-output", "100", "--stdout", file], "for /L %i in (1,1,100000) do echo hi");
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    assert!(std::fs::metadata(&path).unwrap().len() >= 100);
}

#[test]
fn the_command_ends_with_the_tool() {
    let dir = tempfile::tempdir().unwrap();
    let held = dir.path().join("held");
    // No quotes around the path: cmd.exe parses them differently from the C runtime.
    let line = format!("ping -n 600 127.0.0.1 >{}", held.display());
    let mut tool = pipewright(&["run", "--quiet", "--", "cmd", "/c", &line]).spawn().unwrap();
    until("it has begun", || held.exists());
    assert!(!is_free(&held), "it has the file open");
    tool.kill().unwrap();
    tool.wait().unwrap();
    until("no process has the file open", || is_free(&held));
}

#[test]
fn a_failed_start_is_one_line() {
    let output = pipewright(&["run", "--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(err(&output).contains("not found in PATH"), "{}", err(&output));
}

#[test]
fn stages_of_a_pipeline_are_joined() {
    let output =
        pipewright(&["pipe", "--", "cmd", "/c", "echo hi", "|", "cmd", "/c", "more"]).output();
    let output = output.unwrap();
    assert!(out(&output).contains("hi"), "{} {}", out(&output), err(&output));
}

#[test]
fn timeout_kills_what_it_cannot_ask_to_end() {
    // A command in the group of this process, and signals that Windows does not have.
    for options in [&["--foreground"][..], &["-s", "USR1"], &["--foreground", "-s", "USR1"]] {
        let command = ["1s", "ping", "-n", "600", "127.0.0.1"];
        let args = [&["timeout"], options, &command].concat();
        let output = pipewright(&args).stdout(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{options:?}: {}", err(&output));
    }
}

fn start(place: &Place, args: &[&str]) -> Child {
    let mut tool = place.tool(&[&["batch", "--progress", "none"], args].concat());
    tool.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Appends the value to a file, and fails for `b` until there is a file `fixed`.
const NOTE: &str = "echo {}>> ran& if {}==b if not exist fixed exit 3";

#[test]
fn every_value_arrives_as_it_is() {
    let place = Place::new();
    // Each as it is quoted for a POSIX shell: that is how the tool prints the commands that it would run.
    let values = [
        ("plain", "plain"),
        ("two words", "'two words'"),
        ("a\"b", "'a\"b'"),
        ("back\\slash\\", "'back\\slash\\'"),
        ("trailing \\\\\"", "'trailing \\\\\"'"),
        ("%PATH%", "'%PATH%'"),
        ("\u{e4}\u{1f642}", "'\u{e4}\u{1f642}'"),
        ("", "''"),
    ];
    let mut input = String::new();
    for (value, _) in values {
        let tool = env!("CARGO_BIN_EXE_pipewright");
        let argv = [tool, "batch", "--dry-run", "--", "x", value, ":::", "y"];
        input += &format!("{}\n", serde_json::json!({ "argv": argv }));
    }
    place.write("jobs.jsonl", &input);
    let output = place.batch(&["-k", "--jsonl", "--from", "jobs.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let expected: Vec<_> = values.iter().map(|(_, quoted)| format!("x {quoted} y")).collect();
    assert_eq!(out(&output).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn failures_are_named_and_the_rest_runs() {
    let place = Place::new();
    let output =
        place.batch(&["-k", "-j4", "--", "cmd", "/c", "echo {}& exit {}", ":::", "0", "7"]);
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert_eq!(out(&output).lines().map(str::trim_end).collect::<Vec<_>>(), ["0", "7"]);
    assert!(err(&output).contains("1 ok, 1 failed"), "{}", err(&output));
    let missing = place.batch(&["--", "no-such-program", ":::", "1"]);
    assert_eq!(missing.status.code(), Some(123), "{}", err(&missing));
    assert!(err(&missing).contains("1 failed"), "{}", err(&missing));
}

#[test]
fn a_timeout_ends_the_tree_of_a_job() {
    let place = Place::new();
    let line = "ping -n 600 127.0.0.1 >held-{}";
    let output = place.batch(&["--timeout", "2s", "--", "cmd", "/c", line, ":::", "a", "b"]);
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("2 failed"), "{}", err(&output));
    assert!(is_free(&place.path("held-a")) && is_free(&place.path("held-b")));
}

#[test]
fn only_what_failed_or_is_missing_runs_again() {
    let place = Place::new();
    let words = ["--", "cmd", "/c", NOTE, ":::", "a", "b", "c"];
    let run = |options: &[&str]| {
        place.batch(&[&["-j1", "--log", "run.db"], options, &words[..]].concat()).status.code()
    };
    assert_eq!(run(&[]), Some(123));
    assert_eq!(run(&["--resume"]), Some(123));
    assert_eq!(place.lines("ran"), ["a", "b", "c"], "a job that failed is not repeated unasked");
    let failed = place.tool(&["jobs", "--failed", "run.db"]).output().unwrap();
    assert!(out(&failed).contains("exit 3"), "{} {}", out(&failed), err(&failed));
    place.write("fixed", "");
    assert_eq!(run(&["--resume", "--retry-failed"]), Some(0));
    assert_eq!(place.lines("ran"), ["a", "b", "b", "c"]);
    let second = run(&[]);
    assert_eq!(second, Some(125), "the log exists");
}

#[test]
fn a_killed_batch_leaves_no_job_and_is_resumed() {
    let place = Place::new();
    let line = ">>ran-{} echo {}& if not exist resumed ping -n 600 127.0.0.1 >held-{}";
    let words = ["-j2", "--log", "run.db", "--", "cmd", "/c", line, ":::", "1", "2", "3"];
    let mut tool = start(&place, &words);
    until("two jobs run", || place.path("held-1").exists() && place.path("held-2").exists());
    // Another runner is refused meanwhile.
    let refused = place.batch(&[&["--resume"], &words[..]].concat());
    assert_eq!(refused.status.code(), Some(125), "{}", err(&refused));
    assert!(err(&refused).contains("writes to log"), "{}", err(&refused));
    tool.kill().unwrap();
    tool.wait().unwrap();
    until("the jobs have ended", || {
        is_free(&place.path("held-1")) && is_free(&place.path("held-2"))
    });
    place.write("resumed", "");
    let output = place.batch(&["--resume", "run.db"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(place.lines("ran-1"), ["1", "1"]);
    assert_eq!(place.lines("ran-3"), ["3"]);
}

#[test]
fn outputs_are_whole_and_kept_in_files() {
    let place = Place::new();
    let line = "for /L %i in (1,1,200) do @echo {} line %i";
    let args = ["-k", "-j4", "--tag", "--output-dir", "kept", "--", "cmd", "/c", line, ":::"];
    let output = place.batch(&[&args[..], &["a", "b", "c"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines: Vec<_> = out(&output).lines().collect();
    assert_eq!(lines.len(), 600);
    let expected = ["a", "b", "c"]
        .iter()
        .flat_map(|job| (1..=200).map(move |line| format!("{job} line {line}")));
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.trim_end().ends_with(&expected), "{line:?} is not {expected:?}");
    }
    let kept = fs::read_dir(place.path("kept")).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.is_dir()).collect();
    assert_eq!(kept.len(), 3);
    for folder in kept {
        assert_eq!(fs::read_to_string(folder.join("stdout")).unwrap().lines().count(), 200);
        assert!(folder.join("job.json").exists());
    }
}

#[test]
fn input_is_read_while_jobs_run() {
    let place = Place::new();
    let mut tool = place.tool(&["batch", "--quiet", "--", "cmd", "/c", "echo {}> ran-{}"]);
    let mut tool = tool.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = tool.stdin.take().unwrap();
    input.write_all(b"first\r\n").unwrap();
    until("the first job has run", || place.lines("ran-first") == ["first"]);
    input.write_all(b"second\r\n").unwrap();
    drop(input);
    assert!(tool.wait().unwrap().success());
    assert_eq!(place.lines("ran-second"), ["second"]);
}
