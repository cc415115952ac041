//! `run` and its tree: no process survives, whichever is killed. Signals to the tool stop the command, or reach it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::{out, pace, pipewright, run_sh};

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

/// Ends the processes with a mark. One may end by itself after another one has.
fn end_marked(name: &str) {
    until("the marked ones have ended", || {
        let pids = marked(name);
        for pid in &pids {
            // Ignored: it may have ended.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
        pids.is_empty()
    });
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
            end_marked("kill-one");
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
    end_marked("goes-on");
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
        "--kill-after",
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

/// Starts a shell that prints the signals it gets.
fn listening(options: &[&str], end: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut traps = String::new();
    for name in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        let end = if ["INT", "TERM", "HUP"].contains(&name) { end } else { "" };
        traps += &format!("trap 'echo {name}; {end}' {name}; ");
    }
    let script = format!("{traps} echo ready; while :; do sleep 0.02; done");
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "bash", "-c", &script]);
    let mut child = pipewright(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (child, lines)
}

fn send(signal: &str, pid: u32) {
    let status = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Returns true, with a message, if this process ignores a signal, as below `nohup` or after `&` in a shell. The
/// command then ignores it too.
fn is_ignored(name: &str, number: u32) -> bool {
    // Unknown without `/proc`: then the test finds out.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    let ignored = (u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1)) & 1 == 1;
    if ignored {
        pace::skipped(pace::Need::DefaultSignals, format_args!("SIG{name} is ignored"));
    }
    ignored
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_start_of_the_signal_thread_is_reported() {
    // The limit does not apply to root. No other process runs as this user, and no other test: the kernel counts the
    // processes of a user, and would refuse the tool itself.
    let other = rustix::process::geteuid().is_root().then_some(54_319);
    for args in [["run", "--", "true"], ["pipe", "--", "true"]] {
        let mut command = pipewright::Command::new(env!("CARGO_BIN_EXE_pipewright"));
        command.args(args).rlimit(pipewright::Resource::Processes, Some(1), Some(1));
        if let Some(user) = other {
            command.uid(user).gid(user).groups(&[]);
        }
        let output = match command.capture() {
            Ok(output) => output,
            Err(error) => {
                pace::skipped(pace::Need::PublicTarget, error);
                return;
            }
        };
        let words =
            "pipewright: cannot catch signals: Resource temporarily unavailable (os error 11)\n";
        assert_eq!((output.stderr.as_str(), output.status.code()), (words, Some(125)));
    }
}

#[test]
fn the_command_gets_the_stop_signal_that_the_tool_got() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        if is_ignored(name, number) {
            continue;
        }
        for options in [&["--quiet"][..], &["--quiet", "--contain", "group"]] {
            let (mut child, mut lines) = listening(options, "exit 3");
            send(name, child.id());
            assert_eq!(lines.next().unwrap().unwrap(), name);
            assert_eq!(child.wait().unwrap().code(), Some(128 + number as i32), "{name}");
        }
    }
}

#[test]
fn a_command_that_ignores_the_stop_signal_is_killed_after_the_grace() {
    // Long enough for a shell to report the signal on a busy machine.
    let (mut child, mut lines) = listening(&["--quiet", "--kill-after", "3s"], ":");
    send("TERM", child.id());
    assert_eq!(lines.next().unwrap().unwrap(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn other_signals_are_forwarded_and_stop_nothing() {
    let (mut child, mut lines) = listening(&["--quiet"], "exit 3");
    for (name, number) in [("USR1", 10), ("USR2", 12), ("QUIT", 3), ("USR1", 10)] {
        if is_ignored(name, number) {
            continue;
        }
        send(name, child.id());
        assert_eq!(lines.next().unwrap().unwrap(), name);
    }
    send("TERM", child.id());
    assert_eq!(lines.next().unwrap().unwrap(), "TERM");
    child.wait().unwrap();
}

#[test]
fn a_stop_signal_before_the_start_ends_the_tool() {
    if pace::lacks_proc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.to_str().unwrap();
    // No process opens the other side, so the command never starts.
    let ways = [
        &["run", "--stdin", fifo, "--", "cat"][..],
        &["run", "--stdout", fifo, "--", "true"],
        &["pipe", "--", "<", fifo, "cat"],
        &["pipe", "--", "true", ">", fifo],
    ];
    for args in ways {
        let mut child = pipewright(args).spawn().unwrap();
        until("it catches signals", || catches(child.id(), 15));
        send("TERM", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(143), "{args:?}");
    }
    let mut child = pipewright(&["run", "--report", fifo, "--", "true"]).spawn().unwrap();
    until("it catches signals", || catches(child.id(), 15));
    // The signal may arrive before or after the end of the command: both have to end the tool.
    until("it has ended", || {
        send("TERM", child.id());
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// Returns true if the process catches a signal, which it blocks for that. While a thread starts, all signals are
/// blocked, among them those that no process here catches.
pub(super) fn catches(pid: u32, signal: u32) -> bool {
    const VTALRM: u32 = 26;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or("0");
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
    let blocks = |signal: u32| mask >> (signal - 1) & 1 == 1;
    blocks(signal) && !blocks(VTALRM)
}
