//! Timeouts, output limits and retries of `run`, and the processes that they leave.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use crate::{err, is_running, out, pace, pipewright, run_sh};

#[test]
fn a_timeout_kills_the_whole_tree_and_is_reported() {
    pace::in_time(300, |millis| {
        let start = Instant::now();
        let script = "sleep 60 & echo $!; echo $$; sleep 60";
        let output = run_sh(&["--timeout", &pace::option(millis)], script);
        assert!(start.elapsed() >= pace::millis(millis));
        assert_eq!(output.status.code(), Some(124));
        let words = format!("pipewright: \"sh\" timed out after {}\n", pace::option(millis));
        assert_eq!(err(&output), words);
        for pid in out(&output).lines() {
            assert!(!is_running(pid), "{pid} is left");
        }
        (out(&output).lines().count() == 2).then_some(())
    });
    let quiet = run_sh(&["--timeout", "50ms", "--quiet"], "sleep 60");
    assert_eq!((err(&quiet), quiet.status.code()), ("", Some(124)));
}

#[test]
fn limits_and_idle_timeouts_watch_output_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = path.to_str().unwrap();
    let written = || std::fs::read_to_string(&path).unwrap();
    let soon = pace::option(200);
    // The whole run is longer than the idle timeout, which a busy machine may let pass between two lines.
    let lines = pace::in_time(1400, |millis| {
        let lines = millis / 100 + 1;
        let often = format!("for i in $(seq {lines}); do echo hi; sleep 0.1; done");
        let output = run_sh(&["--idle-timeout", &pace::option(millis), "--stdout", file], &often);
        (output.status.code() == Some(0)).then_some(lines as usize)
    });
    assert_eq!(written(), "hi\n".repeat(lines));
    let output = run_sh(&["--idle-timeout", &soon, "--stdout", file], "echo ho; sleep 60");
    assert_eq!(output.status.code(), Some(124));
    assert!(err(&output).contains(&format!("timed out: no output for {soon}")), "{}", err(&output));
    let options = ["--max-output", "999", "--stdout", file];
    let output = run_sh(&options, "while :; do echo hi; done");
    assert_eq!((output.status.code(), out(&output)), (Some(124), ""));
    assert_eq!(written().len(), 999);
    let output = run_sh(&["--max-output", "1000", "--append", "--stderr", file], "echo end >&2");
    assert!(output.status.success() && written().ends_with("hi\nend\n"), "{}", err(&output));
    // The output is in the file only.
    let output = run_sh(
        &["--show-output=on-failure", "--max-output", "1000", "--stdout", file],
        "echo in; exit 3",
    );
    assert_eq!((output.status.code(), out(&output), written()), (Some(3), "", "in\n".to_owned()));
    let words = ["pipe", "--max-output", "1000", "--", "yes", "|", "cat", ">", file];
    assert_eq!(pipewright(&words).output().unwrap().status.code(), Some(124));
    assert_eq!(written().len(), 1000);
}

#[test]
fn an_idle_timeout_and_a_limit_stop_the_command() {
    let shown = pace::in_time(200, |millis| {
        let silence = pace::option(millis);
        let output = run_sh(&["--idle-timeout", &silence], "echo hi; sleep 60");
        assert_eq!(output.status.code(), Some(124));
        let words = format!("pipewright: \"sh\" timed out: no output for {silence}\n");
        assert_eq!(err(&output), words);
        Some(out(&output).to_owned()).filter(|shown| !shown.is_empty())
    });
    assert_eq!(shown, "hi\n");
    let output = run_sh(&["--max-output", "10"], "while :; do echo lots of words; done");
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(err(&output), "pipewright: \"sh\" exceeded --max-output (10 bytes)\n");
}

#[test]
fn no_byte_beyond_a_limit_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = path.to_str().unwrap();
    for words in [
        &["run", "--max-output", "10", "--", "yes"][..],
        &["run", "--max-output", "10", "--show-output=on-failure", "--", "yes"],
        &["run", "--max-output", "10", "--tail", "9", "--", "yes"],
        &["run", "--max-output", "10", "--stdout", file, "--", "yes"],
        &["pipe", "--max-output", "10", "--", "yes", "|", "cat"],
        &["pipe", "--max-output", "10", "--", "yes", "|", "cat", ">", file],
    ] {
        let _ = fs::remove_file(&path);
        let output = pipewright(words).output().unwrap();
        let all = [&output.stdout[..], &fs::read(&path).unwrap_or_default()].concat();
        assert_eq!((all.as_slice(), output.status.code()), (&b"y\ny\ny\ny\ny\n"[..], Some(124)));
    }
    let batch =
        pipewright(&["batch", "--max-output", "10", "--progress", "none", "--", "yes", ":::", "a"])
            .output()
            .unwrap();
    assert_eq!(out(&batch), "a\na\na\na\na\n");
    // Output that just fits is neither stopped nor called truncated.
    let output = run_sh(&["--max-output", "10", "--report", file], "printf 1234567890");
    assert_eq!((out(&output), output.status.code()), ("1234567890", Some(0)));
    let report = fs::read_to_string(&path).unwrap();
    assert!(report.contains("\"truncated\":false"), "{report}");
    // Nor is what fits in both ends.
    for (keep, truncated) in [("9", true), ("10", false), ("4+5", true), ("4+6", false)] {
        for shown in ["always", "on-failure"] {
            let words = ["--keep-output", keep, "--show-output", shown, "--report", file];
            run_sh(&words, "printf 1234567890 >&2; exit 3");
            let report = fs::read_to_string(&path).unwrap();
            let said = format!("\"truncated\":{truncated}");
            assert!(report.contains(&said), "{keep} {shown}: {report}");
        }
    }
}

#[test]
fn only_a_background_process_that_lives_on_is_reported_to_hold_the_output() {
    for contain in ["none", "group"] {
        let options = ["--tee=null", "--contain", contain];
        let output = run_sh(&options, "sleep 60 & echo $!; exit 3");
        let words = "pipewright: \"sh\" exited; a background process still holds its output (see --linger)\n";
        assert_eq!((err(&output), output.status.code()), (words, Some(3)));
        let quiet = run_sh(&[&options[..], &["--quiet"]].concat(), "sleep 60 & echo $!; exit 3");
        assert_eq!(err(&quiet), "");
        for sleep in [output, quiet] {
            std::process::Command::new("kill").arg(out(&sleep).trim()).status().unwrap();
        }
    }
    // In a tree it has been killed, and that is said.
    let words =
        "pipewright: \"sh\" exited; 1 background process was killed (--contain none keeps it)\n";
    for option in ["--tee=null", "--show-output=on-failure"] {
        let output = run_sh(&[option, "--report", "-"], "sleep 60 & exit 3");
        let is_contained = !out(&output).contains("\"containment\":\"group\"");
        if is_contained {
            assert_eq!((err(&output), output.status.code()), (words, Some(3)), "{option}");
            let quiet = run_sh(&[option, "--quiet"], "sleep 60 & exit 3");
            assert_eq!(err(&quiet), "");
        }
        assert!(out(&output).contains("\"held_open\":true"), "{option}: {}", out(&output));
    }
}

#[test]
fn a_timeout_fires_even_if_stdout_is_not_read() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pipewright"));
    command.args(["run", "--tee=null", "--timeout", "200ms", "--", "yes"]);
    let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(tool.wait().unwrap().code(), Some(124));
}

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
        ("limit", &["--max-output", "1"], "echo hi", 3),
        ("code,timeout", &["--max-output", "1"], "echo hi", 1),
        ("oom,lost", &[], "exit 1", 1),
    ] {
        let options =
            [&["--retries", "2", "--retry-delay", "1ms", "--retry-on", retry_on], options].concat();
        let (report, ..) = retried(&options, script);
        assert_eq!(report["attempts"], attempts, "{options:?} {script}");
    }
    for (options, attempts) in
        [(&[][..], 1), (&["--retry-on", "code"], 1), (&["--retry-on", "start"], 3)]
    {
        let words = [
            &["run", "--json", "--retries", "2", "--retry-delay", "0"],
            options,
            &["--", "no-such-program"],
        ];
        let output = crate::pipewright(&words.concat()).output().unwrap();
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
    let delay = ["--retry-delay", "20ms", "--retry-max-delay", "20ms"];
    pace::in_time(300, |millis| {
        let total = pace::option(millis);
        let options = [&["--total-timeout", &total, "--retries", "100000"], &delay[..]].concat();
        let (report, code, _) = retried(&options, "exit 3");
        let attempts = report["attempts"].as_u64().unwrap();
        assert!(attempts < 100_000, "{report}");
        assert!(code == Some(3) || code == Some(124), "{code:?}");
        (attempts >= 2).then_some(())
    });
    // The timeout of an attempt is named as such.
    let options = ["--total-timeout", "1h", "--timeout", "50ms"];
    let (_, _, messages) = retried(&options, "sleep 60");
    assert_eq!(messages, "pipewright: \"sh\" timed out after 50ms\n");
}

#[test]
fn the_report_has_the_time_of_the_last_attempt_and_of_all() {
    let options = ["--retries", "2", "--retry-delay", "70ms", "--quiet"];
    let (report, ..) = retried(&options, "exit 3");
    let seconds = |name: &str| report[name].as_f64().unwrap();
    assert!(seconds("total_seconds") >= 0.2 + seconds("elapsed_seconds"), "{report}");
}

#[test]
fn the_delay_of_each_retry_is_announced() {
    let options = ["--retries", "3", "--retry-delay", "10ms", "--retry-max-delay", "25ms"];
    let (_, _, messages) = retried(&options, "exit 3");
    let delays: Vec<_> =
        messages.lines().filter_map(|line| line.split_once("in ")).map(|it| it.1).collect();
    assert_eq!(delays, ["10ms", "20ms", "25ms"]);
}

/// As in `timeout` of coreutils. It was a race: the command could win.
#[test]
fn a_timeout_of_zero_is_none() {
    for option in ["--timeout", "--idle-timeout"] {
        let output = run_sh(&[option, "0"], "sleep 0.1; echo done");
        assert_eq!((out(&output), output.status.code()), ("done\n", Some(0)), "{option}");
        let words = ["pipe", option, "0s", "--", "sh", "-c", "sleep 0.1; echo done", "|", "cat"];
        let output = pipewright(&words).output().unwrap();
        assert_eq!((out(&output), output.status.code()), ("done\n", Some(0)), "{option}");
    }
    for option in ["--timeout", "--idle-timeout", "--batch-timeout"] {
        let words =
            ["batch", "--quiet", option, "0", "--", "sh", "-c", "sleep 0.1; echo $0", ":::", "a"];
        let output = pipewright(&words).output().unwrap();
        assert_eq!((out(&output), err(&output)), ("a\n", ""), "{option}");
    }
}
