//! The tool on Windows; the suites for Unix cover the rest.

mod batch;

use std::fs::OpenOptions;
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{err, out, pace, pipewright};

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
    let output = run_cmd(&["--limit", "1000", "--stdout", file], "echo hi");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), "hi");
    let output =
        run_cmd(&["--limit", "100", "--stdout", file], "for /L %i in (1,1,100000) do echo hi");
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
