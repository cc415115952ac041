//! `run` and its tree: no process survives, whichever process of the tool is killed.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{out, pace, pipewright, run_sh};

pub(super) const MARK: &str = "PIPEWRIGHT_CLI_TREE_TEST";

/// Returns the value of `MARK` that [`marked`] looks for, unique to this run of the suite.
pub(super) fn mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Returns the running processes with this mark in their environment.
pub(super) fn marked(name: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={}", mark(name));
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == wanted.as_bytes())
            && !state.contains(") Z ")
    };
    pids.filter(is_marked).collect()
}

/// Returns the supervisor and its guard below a process; empty if this machine allows none.
fn supervisors(pid: u32) -> Vec<u32> {
    let machine = pipewright(&["doctor", "--json"]).output().unwrap();
    if !out(&machine).contains(r#""name":"supervisor","state":"available""#) {
        return Vec::new();
    }
    // They get their names by exec, which the guard may do after the command.
    let named = || named_below(pid, "pw-supervisor");
    until("they have their names", || named().len() == 2);
    named()
}

/// Returns the descendants with a name whose ancestors up to `pid` have it too.
pub(super) fn named_below(pid: u32, wanted: &str) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()) {
                let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
                if name.trim() == wanted {
                    found.push(child);
                    parents.push(child);
                }
            }
        }
    }
    found
}

#[track_caller]
pub(super) fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < pace::millis(30_000), "waited in vain until {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// Starts the command, two shells and three sleeps, and waits until all run.
fn started_tree(name: &str, options: &[&str]) -> Child {
    let script = "(setsid sh -c \"sleep 300 & sleep 300\") & sleep 300";
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    let mut command = pipewright(&args);
    command.env(MARK, mark(name)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let sleeps = || {
        let is_sleep = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep")
        };
        marked(name).iter().filter(|pid| is_sleep(pid)).count()
    };
    // A timeout may fire before that.
    until("the three sleep", || sleeps() == 3 || child.try_wait().unwrap().is_some());
    child
}

#[test]
fn no_descendant_survives_a_kill_of_any_process_of_the_tool() {
    if pace::lacks_proc() {
        return;
    }
    let mut of_us = 1;
    let mut index = 0;
    while index < of_us {
        let mut child = started_tree("kill-one", &[]);
        let mut ours = vec![child.id()];
        ours.extend(supervisors(child.id()));
        of_us = ours.len();
        if of_us == 1 {
            pace::skipped(
                pace::Need::Supervisor,
                "no supervisor is to be had here, the command alone ends with us",
            );
            kill(child.id());
            child.wait().unwrap();
            marked("kill-one").into_iter().for_each(kill);
            return;
        }
        kill(ours[index]);
        until("no process is left", || marked("kill-one").is_empty());
        child.wait().unwrap();
        index += 1;
    }
    assert_eq!(of_us, 3, "pipewright, a supervisor, its guard");
}

#[test]
fn no_descendant_survives_a_timeout_or_the_end_of_the_command() {
    if pace::lacks_proc() {
        return;
    }
    let mut child = started_tree("timeout", &["--timeout", &pace::option(300), "--quiet"]);
    assert_eq!(child.wait().unwrap().code(), Some(124));
    until("no process is left", || marked("timeout").is_empty());

    let script =
        format!("export {MARK}={}; (setsid sleep 300 &) ; setsid sleep 300 & exit 5", mark("end"));
    let output = run_sh(&["--report", "-"], &format!("exec > /dev/null; {script}"));
    assert_eq!(output.status.code(), Some(5));
    until("no process is left", || marked("end").is_empty());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    if report["containment"] != "group" {
        assert_eq!(report["leftovers_killed"], 2, "{report}");
    }
}

#[test]
fn with_contain_none_leftovers_keep_running() {
    if pace::lacks_proc() {
        return;
    }
    let script =
        format!("export {MARK}={}; setsid sleep 300 > /dev/null 2>&1 & exit 5", mark("goes-on"));
    let output = run_sh(&["--contain", "none", "--report", "-"], &script);
    assert_eq!(output.status.code(), Some(5));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["containment"], &report["leftovers_killed"]), (&"none".into(), &0.into()));
    until("it runs", || !marked("goes-on").is_empty());
    marked("goes-on").into_iter().for_each(kill);
}

#[test]
fn a_detached_command_outlives_the_tool_and_its_pid_is_printed() {
    if pace::lacks_proc() {
        return;
    }
    let output = pipewright(&["run", "--detach", "--", "sleep", "300"])
        .env(MARK, mark("detached"))
        .output()
        .unwrap();
    assert!(output.status.success());
    let pid: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    until("it sleeps", || marked("detached") == [pid]);
    kill(pid);
    until("it is gone", || marked("detached").is_empty());
    let output = pipewright(&["run", "--detach", "--", "no-such"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let misuse =
        pipewright(&["run", "--detach", "--timeout", "1s", "--", "true"]).output().unwrap();
    assert_eq!(misuse.status.code(), Some(125));
}

#[test]
fn a_pipeline_is_contained() {
    if pace::lacks_proc() {
        return;
    }
    let mut command = pipewright(&[
        "pipe",
        "--timeout",
        "300ms",
        "--kill-grace",
        "50ms",
        "--",
        "sh",
        "-c",
        "(setsid sleep 300 &) ; sleep 300",
        "|",
        "sh",
        "-c",
        "trap '' TERM; sleep 300; sleep 300",
    ]);
    let status = command.env(MARK, mark("pipeline")).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(124));
    until("no process is left", || marked("pipeline").is_empty());
}
