//! `pipewright pipe`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::{err, is_running, out, pace, pipewright, send_signal, with_default_stop_signals};

/// Runs `pipewright pipe` with options and words.
fn pipe(options: &[&str], words: &[&str]) -> Output {
    let mut args = vec!["pipe"];
    args.extend(options);
    args.push("--");
    args.extend(words);
    pipewright(&args).output().unwrap()
}

#[test]
fn commands_are_joined_and_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (input, output) = (path("in"), path("out"));
    fs::write(&input, "b\na\nb\n").unwrap();
    let result = pipe(&[], &["<", &input, "sort", "|", "uniq", "-c", "|", "tr", "-d", " "]);
    assert_eq!((out(&result), err(&result), result.status.code()), ("1a\n2b\n", "", Some(0)));
    let result = pipe(&[], &["<", &input, "cat", "|", "head", "-n", "1", ">", &output]);
    assert_eq!((out(&result), result.status.code()), ("", Some(0)));
    assert!(pipe(&[], &["echo", "more", "|", "cat", ">>", &output]).status.success());
    assert_eq!(fs::read_to_string(&output).unwrap(), "b\nmore\n");
    assert_eq!(out(&pipe(&[], &["echo", r"\|", r"\>", r"\>>", "|", "cat"])), "| > >>\n");
    assert_eq!(out(&pipe(&[], &["echo", "alone"])), "alone\n");
    let options = ["--clear-env", "--env", "A=1", "--cwd", "/"];
    let words = ["sh", "-c", "echo $A $HOME; pwd", "|", "sh", "-c", "cat; echo $A; pwd"];
    assert_eq!(out(&pipe(&options, &words)), "1\n/\n1\n/\n");
}

#[test]
fn exit_codes_are_those_of_the_pipeline() {
    let exit = |code| ["sh", "-c", code];
    let of = |options: &[&str], stages: &[&[&str]]| {
        pipe(options, &stages.join(&"|")).status.code().unwrap()
    };
    assert_eq!(of(&[], &[&exit("exit 3"), &["cat"]]), 3);
    assert_eq!(of(&[], &[&exit("exit 3"), &exit("exit 4"), &["cat"]]), 4);
    assert_eq!(of(&["--no-pipefail"], &[&exit("exit 3"), &["cat"]]), 0);
    assert_eq!(of(&[], &[&exit("kill -9 $$"), &["cat"]]), 137);
    assert_eq!(of(&[], &[&["true"], &exit("kill $$")]), 143);
    let quiet = pipe(&[], &["yes", "|", "head", "-1"]);
    assert_eq!((out(&quiet), err(&quiet), quiet.status.code()), ("y\n", "", Some(0)));
    for (words, code) in [
        (["no-such-program", "|", "cat"], 127),
        (["echo", "|", "no-such-program"], 127),
        (["yes", "|", "/etc/passwd"], 126),
    ] {
        let output = pipe(&[], &words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
        assert!(err(&output).starts_with("pipewright: cannot start \""), "{}", err(&output));
    }
}

#[test]
fn wrong_usage_is_125_and_one_line() {
    for (words, message) in [
        (&["cat", "|"][..], "stage 2 of 2 has no command"),
        (&["|", "cat"], "stage 1 of 2 has no command"),
        (&["a", "|", "|", "b"], "stage 2 of 3 has no command"),
        (&["a", ">", "f", "|", "b"], "'>' must stand after the last command"),
        (&["<"], "no file after '<'"),
        (&["cat", "|", "cat", ">", "/no/such/dir/file"], "cannot open \"/no/such/dir/file\""),
        (&["<", "/no/such/file", "cat"], "cannot open \"/no/such/file\" for its stdin"),
    ] {
        let output = pipe(&[], words);
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(err(&output).starts_with("pipewright: "), "{words:?}: {}", err(&output));
        assert!(err(&output).contains(message), "{words:?}: {}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{words:?}: {}", err(&output));
    }
    assert_eq!(pipewright(&["pipe"]).output().unwrap().status.code(), Some(125));
}

#[test]
fn timeouts_and_limits_stop_every_stage() {
    let words = ["sh", "-c", "echo $$ >&2; sleep 60", "|", "sh", "-c", "echo $$; cat"];
    pace::in_time(300, |millis| {
        let start = Instant::now();
        let output = pipe(&["--timeout", &pace::option(millis)], &words);
        assert!(start.elapsed() >= pace::millis(millis));
        assert_eq!(output.status.code(), Some(124));
        let limit = pace::option(millis);
        let message = format!("pipewright: \"sh | sh\" timed out after {limit}\n");
        let first = err(&output).strip_suffix(&message).expect(&message);
        let pids = [first, out(&output)];
        pids.iter().all(|pid| !pid.is_empty()).then(|| {
            assert!(!pids.iter().any(|pid| is_running(pid)), "{output:?}");
        })
    });
    let words = ["sh", "-c", "echo hi; sleep 60", "|", "cat"];
    let shown = pace::in_time(200, |millis| {
        let silence = pace::option(millis);
        let output = pipe(&["--idle-timeout", &silence], &words);
        assert_eq!(output.status.code(), Some(124));
        let message = format!("pipewright: \"sh | cat\" timed out: no output for {silence}\n");
        assert_eq!(err(&output), message);
        Some(out(&output).to_owned()).filter(|shown| !shown.is_empty())
    });
    assert_eq!(shown, "hi\n");
    let output = pipe(&["--max-output", "10", "--quiet"], &["yes", "|", "cat"]);
    assert_eq!((err(&output), output.status.code()), ("", Some(124)));
}

#[test]
fn a_stop_signal_to_the_tool_stops_every_stage() {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let mut command = with_default_stop_signals();
        command.args(["pipe", "--", "sh", "-c", "echo $$; sleep 60"]);
        command.args(["|", "sh", "-c", "read first; echo $first; echo $$; sleep 60"]);
        let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut pids = BufReader::new(tool.stdout.take().unwrap()).lines().map(Result::unwrap);
        let pids = [pids.next().unwrap(), pids.next().unwrap()];
        send_signal(&tool, signal);
        assert_eq!(tool.wait().unwrap().code(), Some(code), "{signal}");
        assert!(!pids.iter().any(|pid| is_running(pid)), "{signal}: {pids:?}");
    }
}

#[test]
fn the_report_has_every_stage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json").display().to_string();
    let report = |options: &[&str], words: &[&str]| -> Value {
        let mut all = vec!["--quiet", "--report", &path];
        all.extend(options);
        pipe(&all, words);
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
    };
    let words = ["sh", "-c", "yes; exit 141", "|", "sh", "-c", "exit 3", "|", "wc", "-c"];
    let report_json = report(&["--tee=null"], &words);
    let mut names: Vec<&str> =
        report_json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut documented = vec![
        "schema",
        "pid",
        "containment",
        "leftovers_killed",
        "limits",
        "tree",
        "out_of_memory",
        "attempts",
        "command",
        "outcome",
        "exit_code",
        "signal",
        "decided_by",
        "elapsed_seconds",
        "user_seconds",
        "system_seconds",
        "peak_rss_bytes",
        "context_switches",
        "stdout_bytes",
        "stderr_bytes",
        "held_open",
        "truncated",
        "stages",
        "error",
    ];
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(names, documented);
    assert_eq!(
        (&report_json["schema"], &report_json["command"]),
        (&"pipewright.pipe/1".into(), &words[..].into())
    );
    assert_eq!((&report_json["exit_code"], &report_json["decided_by"]), (&3.into(), &1.into()));
    assert_eq!(
        (&report_json["stdout_bytes"], &report_json["outcome"]),
        (&2.into(), &"exited".into())
    );
    let stages = report_json["stages"].as_array().unwrap();
    assert_eq!(report_json["pid"], stages[1]["pid"]);
    let codes: Vec<&Value> = stages.iter().map(|stage| &stage["exit_code"]).collect();
    assert_eq!(codes, [&Value::from(141), &3.into(), &0.into()]);
    assert_eq!(stages[2]["command"], Value::from(&["wc", "-c"][..]));
    for stage in stages {
        assert!(stage["pid"].as_u64().unwrap() > 0 && stage["user_seconds"].as_f64().is_some());
    }
    let report_json = report(&["--timeout", "50ms"], &["sleep", "60", "|", "sleep", "60"]);
    assert_eq!(
        (&report_json["outcome"], &report_json["signal"]),
        (&"timed_out".into(), &"SIGTERM".into())
    );
    assert_eq!(report_json["stages"][0]["signal"], "SIGTERM");
    let report_json = report(&[], &["yes", "|", "no-such-program"]);
    assert_eq!(
        (&report_json["outcome"], &report_json["decided_by"]),
        (&"not_started".into(), &Value::Null)
    );
    assert_eq!(report_json["error"]["kind"], "not_found");
    assert_eq!(
        (&report_json["stages"][0]["pid"], &report_json["stages"][1]["pid"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn operators_of_a_shell_get_a_hint() {
    for (word, escaped) in [("||", r"\||"), ("&&", r"\&&"), ("2>&1", r"\2>&1"), (";", r"\;")] {
        let output = pipe(&[], &["echo", "a", word, "echo", "b", "|", "cat"]);
        assert_eq!(out(&output), format!("a {word} echo b\n"));
        let words = format!(
            "pipewright: '{word}' is an argument of \"echo\" here, \
             because pipe is no shell: for that, use sh -c '...'; to \
             pass it without this hint, write '{escaped}'\n"
        );
        assert_eq!((err(&output), output.status.code()), (&words[..], Some(0)));
        for (options, word) in [(&["--quiet"][..], word), (&[], escaped)] {
            let output = pipe(options, &["echo", "a", word, "b"]);
            assert_eq!(
                (out(&output), err(&output)),
                (&format!("a {} b\n", words_of(word))[..], "")
            );
        }
    }
    let output = pipe(&[], &["find", "/", "-maxdepth", "0", "-exec", "echo", "{}", ";"]);
    assert_eq!((out(&output), err(&output)), ("/\n", ""));
}

fn words_of(escaped: &str) -> &str {
    escaped.trim_start_matches('\\')
}
