//! Timeouts and output limits of `run`, and the processes that they leave.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use super::{err, is_running, out, pace, pipewright, run_sh};

#[test]
fn a_timeout_kills_the_whole_tree_and_is_reported() {
    let start = Instant::now();
    let script = "sleep 60 & echo $!; echo $$; sleep 60";
    let output = run_sh(&["--timeout", &pace::option(300)], script);
    assert!(start.elapsed() >= pace::millis(300));
    assert_eq!(output.status.code(), Some(124));
    let words = format!("pipewright: \"sh\" timed out after {}\n", pace::option(300));
    assert_eq!(err(&output), words);
    for pid in out(&output).lines() {
        assert!(!is_running(pid), "{pid} is left");
    }
    let quiet = run_sh(&["--timeout", "50ms", "--quiet"], "sleep 60");
    assert_eq!((err(&quiet), quiet.status.code()), ("", Some(124)));
}

#[test]
fn limits_and_idle_timeouts_watch_output_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = path.to_str().unwrap();
    let written = || std::fs::read_to_string(&path).unwrap();
    let often = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo hi; sleep 0.1; done";
    let soon = pace::option(200);
    // The whole run is longer than the idle timeout.
    let output = run_sh(&["--idle-timeout", &pace::option(1400), "--stdout", file], often);
    assert_eq!((output.status.code(), written()), (Some(0), "hi\n".repeat(15)));
    let output = run_sh(&["--idle-timeout", &soon, "--stdout", file], "echo ho; sleep 60");
    assert_eq!(output.status.code(), Some(124));
    assert!(err(&output).contains(&format!("timed out: no output for {soon}")), "{}", err(&output));
    let options = ["--limit", "999", "--stdout", file];
    let output = run_sh(&options, "while :; do echo hi; done");
    assert_eq!((output.status.code(), out(&output)), (Some(124), ""));
    assert_eq!(written().len(), 999);
    let output = run_sh(&["--limit", "1000", "--append", "--stderr", file], "echo end >&2");
    assert!(output.status.success() && written().ends_with("hi\nend\n"), "{}", err(&output));
    // The output is in the file only.
    let output = run_sh(&["--capture", "--limit", "1000", "--stdout", file], "echo in; exit 3");
    assert_eq!((output.status.code(), out(&output), written()), (Some(3), "", "in\n".to_owned()));
    let words = ["pipe", "--limit", "1000", "--", "yes", "|", "cat", ">", file];
    assert_eq!(pipewright(&words).output().unwrap().status.code(), Some(124));
    assert_eq!(written().len(), 1000);
}

#[test]
fn an_idle_timeout_and_a_limit_stop_the_command() {
    let output = run_sh(&["--idle-timeout", &pace::option(200)], "echo hi; sleep 60");
    assert_eq!((out(&output), output.status.code()), ("hi\n", Some(124)));
    let words = format!("pipewright: \"sh\" timed out: no output for {}\n", pace::option(200));
    assert_eq!(err(&output), words);
    let output = run_sh(&["--limit", "10"], "while :; do echo lots of words; done");
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(err(&output), "pipewright: \"sh\" exceeded --limit (10 bytes)\n");
}

#[test]
fn no_byte_beyond_a_limit_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = path.to_str().unwrap();
    for words in [
        &["run", "--limit", "10", "--", "yes"][..],
        &["run", "--limit", "10", "--capture", "--", "yes"],
        &["run", "--limit", "10", "--tail", "9", "--", "yes"],
        &["run", "--limit", "10", "--stdout", file, "--", "yes"],
        &["pipe", "--limit", "10", "--", "yes", "|", "cat"],
        &["pipe", "--limit", "10", "--", "yes", "|", "cat", ">", file],
    ] {
        let _ = fs::remove_file(&path);
        let output = pipewright(words).output().unwrap();
        let all = [&output.stdout[..], &fs::read(&path).unwrap_or_default()].concat();
        assert_eq!((all.as_slice(), output.status.code()), (&b"y\ny\ny\ny\ny\n"[..], Some(124)));
    }
    let batch =
        pipewright(&["batch", "--limit", "10", "--progress", "none", "--", "yes", ":::", "a"])
            .output()
            .unwrap();
    assert_eq!(out(&batch), "a\na\na\na\na\n");
    // Output that just fits is neither stopped nor called truncated.
    let output = run_sh(&["--limit", "10", "--report", file], "printf 1234567890");
    assert_eq!((out(&output), output.status.code()), ("1234567890", Some(0)));
    let report = fs::read_to_string(&path).unwrap();
    assert!(report.contains("\"truncated\":false"), "{report}");
}

#[test]
fn only_a_background_process_that_lives_on_is_reported_to_hold_the_output() {
    for contain in ["none", "group"] {
        let options = ["--tee", "--contain", contain];
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
    for option in ["--tee", "--capture"] {
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
    command.args(["run", "--tee", "--timeout", "200ms", "--", "yes"]);
    let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(tool.wait().unwrap().code(), Some(124));
}
