//! `run --retries`: which failures, when, and how long in all.

use serde_json::Value;

use super::{err, out, pace, run_sh};

/// Runs a script with retries. Returns the report, the exit code and the messages.
fn retried(options: &[&str], script: &str) -> (Value, Option<i32>, String) {
    let output = run_sh(&[&["--report", "-"], options].concat(), script);
    // Behind the output of the command.
    let report = out(&output).find('{').and_then(|start| out(&output).get(start..)).unwrap();
    (serde_json::from_str(report).unwrap(), output.status.code(), err(&output).to_owned())
}

#[test]
fn only_chosen_failures_are_retried() {
    for (retry_on, options, script, attempts) in [
        ("75", &[][..], "exit 75", 3),
        ("75", &[], "exit 1", 1),
        ("1,75", &[], "exit 1", 3),
        ("code", &[], "exit 1", 3),
        ("code", &[], "kill -9 $$", 1),
        ("signal", &[], "kill -9 $$", 3),
        ("signal,timeout", &[], "exit 1", 1),
        ("timeout", &["--timeout", "50ms"], "sleep 60", 3),
        ("code", &["--timeout", "50ms"], "sleep 60", 1),
        ("timeout", &["--idle-timeout", "50ms"], "sleep 60", 3),
        ("limit", &["--limit", "1"], "echo hi", 3),
        ("code,timeout", &["--limit", "1"], "echo hi", 1),
    ] {
        let options = [&["--retries", "2", "--retry-on", retry_on], options].concat();
        let (report, ..) = retried(&options, script);
        assert_eq!(report["attempts"], attempts, "{options:?} {script}");
    }
    for (options, attempts) in
        [(&[][..], 1), (&["--retry-on", "code"], 1), (&["--retry-on", "start"], 3)]
    {
        let words = [&["run", "--json", "--retries", "2"], options, &["--", "no-such-program"]];
        let output = super::pipewright(&words.concat()).output().unwrap();
        let report: Value = serde_json::from_str(out(&output)).unwrap();
        assert_eq!((&report["attempts"], output.status.code()), (&attempts.into(), Some(127)));
    }
}

#[test]
fn the_total_timeout_ends_all_attempts() {
    let total = pace::option(300);
    // It stops an attempt that runs.
    let options = ["--total-timeout", &total, "--retries", "5", "--timeout", "1h"];
    let (report, code, messages) = retried(&options, "sleep 60");
    assert_eq!((&report["attempts"], code), (&1.into(), Some(124)));
    assert_eq!(messages, format!("pipewright: \"sh\" timed out: all attempts took {total}\n"));
    // There is no attempt after it, and none is waited for that would begin after it.
    let options = ["--total-timeout", "1h", "--retries", "5", "--retry-delay", "2h"];
    let (report, code, messages) = retried(&options, "exit 3");
    assert_eq!((&report["attempts"], code, &messages[..]), (&1.into(), Some(3), ""));
    let options = ["--total-timeout", &total, "--retries", "100000", "--retry-delay", "20ms"];
    let (report, code, _) = retried(&options, "exit 3");
    let attempts = report["attempts"].as_u64().unwrap();
    assert!((2..100_000).contains(&attempts), "{report}");
    assert!(code == Some(3) || code == Some(124), "{code:?}");
    // The timeout of an attempt is named as such.
    let options = ["--total-timeout", "1h", "--timeout", "50ms"];
    let (_, _, messages) = retried(&options, "sleep 60");
    assert_eq!(messages, "pipewright: \"sh\" timed out after 50ms\n");
}

#[test]
fn the_report_has_the_time_of_the_last_attempt_and_of_all() {
    let options = ["--retries", "2", "--retry-delay", "100ms", "--quiet"];
    let (report, ..) = retried(&options, "exit 3");
    let seconds = |name: &str| report[name].as_f64().unwrap();
    assert!(seconds("total_seconds") >= 0.2 + seconds("elapsed_seconds"), "{report}");
}

#[test]
fn the_delay_of_each_retry_is_announced() {
    let options = ["--retries", "3", "--retry-delay", "10ms", "--retry-backoff"];
    let (_, _, messages) = retried(&options, "exit 3");
    let delays: Vec<_> =
        messages.lines().filter_map(|line| line.split_once("in ")).map(|it| it.1).collect();
    assert_eq!(delays, ["10ms", "20ms", "40ms"]);
}
