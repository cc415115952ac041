//! `run --memory`, `--swap`, `--cpus`, `--pids`: the limits, the message and the report.

use std::process::Output;

use serde_json::Value;

use super::{err, out, pace, pipewright};

/// Allocates 200 MiB: a line without an end, all of which `tail` keeps.
const ALLOCATES: [&str; 4] = ["head", "-c", "200M", "/dev/zero"];

fn run(words: &[&str]) -> Output {
    pipewright(&[&["run"], words].concat()).output().unwrap()
}

/// Returns true, and reports it, if this machine cannot hold a limit on memory.
fn cannot_limit() -> bool {
    let tried = run(&["--memory", "64M", "--swap", "0", "--", "true"]);
    if tried.status.success() {
        return false;
    }
    let reason = err(&tried);
    assert_eq!(tried.status.code(), Some(125), "{reason}");
    assert!(reason.contains("memory_max cannot be held: "), "{reason}");
    pace::skipped(pace::Need::TreeLimits, reason);
    true
}

fn hungry() -> String {
    format!("{} | tail > /dev/null; exit 0", ALLOCATES.join(" "))
}

#[test]
fn a_tree_that_needs_more_memory_is_reported_by_message_code_and_report() {
    if cannot_limit() {
        return;
    }
    let done = run(&["--memory", "16M", "--swap", "0", "--json", "--", "sh", "-c", &hungry()]);
    assert_eq!(done.status.code(), Some(124), "{}", err(&done));
    assert!(err(&done).contains(" killed: over its memory limit of 16 MiB"), "{}", err(&done));
    let report: Value = serde_json::from_str(out(&done)).unwrap();
    assert_eq!(report["outcome"], "out_of_memory");
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["limits"]["memory_max_bytes"], 16 << 20);
    assert_eq!(report["limits"]["memory_swap_max_bytes"], 0);
    assert_eq!(report["out_of_memory"]["limit"], "command");
    assert_eq!(report["out_of_memory"]["limit_bytes"], 16 << 20);
    assert!(report["out_of_memory"]["killed"].as_u64() >= Some(1));
}

#[test]
fn limits_that_hold_change_nothing_and_are_in_the_report() {
    if cannot_limit() {
        return;
    }
    let limits = ["--memory", "64M", "--cpus", "1.5", "--pids", "50", "--best-effort"];
    let done = run(&[&limits[..], &["--json", "--", "sh", "-c", "exit 3"]].concat());
    assert_eq!(done.status.code(), Some(3), "{}", err(&done));
    let report: Value = serde_json::from_str(out(&done)).unwrap();
    assert_eq!(report["limits"]["memory_max_bytes"], 64 << 20);
    assert_eq!(report["out_of_memory"], Value::Null);
    assert!(report["tree"].is_object(), "{report}");
}

#[test]
fn a_limit_that_cannot_be_meant_is_wrong_usage() {
    for words in [["--memory", "0"], ["--cpus", "0"], ["--cpus", "many"], ["--pids", "0"]] {
        let done = run(&[&words[..], &["--", "true"]].concat());
        assert_eq!(done.status.code(), Some(125), "{words:?}: {}", err(&done));
    }
    let done = run(&["--oom-group", "--", "true"]);
    assert!(err(&done).contains("--memory"), "{}", err(&done));
}

#[test]
fn doctor_says_if_limits_can_be_had_and_what_would_help() {
    let found = pipewright(&["doctor", "--json"]).output().unwrap();
    let found: Value = serde_json::from_str(out(&found)).unwrap();
    let facilities = found["facilities"].as_array().unwrap();
    for name in ["memory limit", "cpu limit", "pids limit"] {
        let entry = facilities.iter().find(|entry| entry["name"] == name).unwrap();
        let detail = entry["detail"].as_str().unwrap();
        match entry["state"].as_str() {
            Some("available") => assert!(detail.starts_with("cgroup v"), "{detail}"),
            state => {
                assert_eq!(state, Some("missing"));
                assert!(detail.contains(" cannot be held: "), "{detail}");
            }
        }
    }
}
