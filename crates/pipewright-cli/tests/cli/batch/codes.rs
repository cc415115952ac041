//! Exit codes, retries, and streams that are closed or full.

use super::{Place, err, out, pace, refused};

#[test]
fn exit_codes_are_those_of_xargs_and_timeout() {
    let place = Place::new();
    for (script, code) in [("exit 0", 0), ("exit 1", 123), ("exit 255", 123), ("kill -9 $$", 123)] {
        let output = place.batch(&["--", "sh", "-c", script, ":::", "1"]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", err(&output));
    }
    let output = place.batch(&["--", "no-such-program", ":::", "1"]);
    assert_eq!(output.status.code(), Some(123), "{}", err(&output));
    assert!(err(&output).contains("no-such-program"), "{}", err(&output));
    let late = place.batch(&["--batch-timeout", &pace::option(200), "--", "sleep", ":::", "60"]);
    assert_eq!(late.status.code(), Some(124), "{}", err(&late));
    let slow = place.batch(&["--timeout", &pace::option(200), "--", "sleep", ":::", "60"]);
    assert_eq!(slow.status.code(), Some(123), "{}", err(&slow));
    for wrong in [
        &["--jobs", "0", "--", "echo"][..],
        &["--resume", "--", "echo"],
        &["--from", "no-such-file", "--", "echo"],
        &["--jsonl", "--", "echo"],
        &["--csv"],
        &["--env", "NOVALUE", "--", "echo", ":::", "1"],
    ] {
        refused(&place.batch(wrong), &[]);
    }
    let output = place.batch_of("", &["--", "echo", "{99}", ":::", "1"]);
    refused(&output, &["column 99"]);
}

#[test]
fn a_reader_that_is_gone_ends_the_batch_with_141() {
    let place = Place::new();
    let script = "{ seq 100000 | $PW batch --quiet -- echo; echo $? >&2; } | head -n 1";
    let output = place.sh(script);
    assert_eq!(err(&output), "141\n");
    assert_eq!(out(&output).lines().count(), 1);
}

#[test]
fn the_summary_counts_every_job() {
    let place = Place::new();
    let json = r#"{"id":"bad","argv":["false"]}
{"argv":["true"],"after":["bad"]}
{"argv":["true"]}"#;
    place.write("jobs", json);
    let output = place.batch(&["--jsonl", "--from", "jobs"]);
    assert_eq!(output.status.code(), Some(123));
    assert!(err(&output).contains("1 ok, 1 failed, 1 skipped, 0 unknown"), "{}", err(&output));
    let fast = place.batch(&[
        "-j1",
        "--fail-fast",
        "--",
        "sh",
        "-c",
        "echo {} >> ran; exit {}",
        ":::",
        "1",
        "0",
        "0",
    ]);
    assert_eq!((fast.status.code(), place.read("ran")), (Some(123), "1\n".to_owned()));
    assert!(err(&fast).contains("(the limit of failures is reached)"), "{}", err(&fast));
}

#[test]
fn only_the_failures_of_the_classes_are_retried() {
    let place = Place::new();
    let soon = pace::option(200);
    for (on, script, tries) in [
        ("code", "exit 1", 3),
        ("signal", "exit 1", 1),
        ("signal", "kill -9 $$", 3),
        ("code", "kill -9 $$", 1),
        ("timeout", "sleep 60", 3),
        ("code,signal", "sleep 60", 1),
    ] {
        let script = format!("echo $PIPEWRIGHT_ATTEMPT >> ran; {script}");
        let options =
            ["--timeout", &soon, "--retries", "2", "--retry-delay", "1ms", "--retry-on", on];
        let output =
            place.batch(&[&options[..], &["--", "sh", "-c", &script, ":::", "1"]].concat());
        assert_eq!(output.status.code(), Some(123), "{on} {script}");
        assert_eq!(place.read("ran"), ["1\n", "2\n", "3\n"][..tries].concat(), "{on} {script}");
        std::fs::remove_file(place.path("ran")).unwrap();
    }
    let script = "test $PIPEWRIGHT_ATTEMPT = 2";
    let args = ["--retries", "1", "--retry-delay", "1ms", "--", "sh", "-c", script, ":::", "1"];
    assert_eq!(place.batch(&args).status.code(), Some(0));
}

#[test]
fn a_full_stdout_is_125() {
    if pace::lacks("/dev/full") {
        return;
    }
    let place = Place::new();
    let script = "$PW batch --quiet --log run.db -- echo ::: 1 2 > /dev/full";
    refused(&place.sh(script), &["cannot write to stdout", "No space left"]);
}

#[test]
fn closed_streams_do_not_hinder_the_jobs() {
    let place = Place::new();
    // The jobs run, and output that cannot be printed is an error.
    for (closed, code) in [("<&-", 0), (">&-", 125), ("2>&-", 0), ("<&- >&- 2>&-", 125)] {
        let script = format!(
            "$PW batch --log run.db -- sh -c 'echo out; echo err >&2; echo {{}} >> ran' ::: 1 2 3 {closed}"
        );
        let output = place.sh(&script);
        assert_eq!(output.status.code(), Some(code), "{closed}: {}", err(&output));
        assert_eq!(place.lines("ran"), ["1", "2", "3"], "{closed}");
        // A log that got the number of a closed stream would have messages in it.
        if let Some(rows) = place.rows("run.db", "select count(*) from attempts") {
            assert_eq!(rows, ["3"], "{closed}");
        }
        for file in ["ran", "run.db"] {
            std::fs::remove_file(place.path(file)).unwrap();
        }
    }
}

#[test]
fn reports_that_cannot_be_written_fail_before_any_job_starts() {
    let place = Place::new();
    place.write("file", "");
    for option in ["--events", "--html", "--trace", "--log"] {
        let output = place.batch(&[option, "no/such/file", "--", "touch", ":::", "started"]);
        refused(&output, &["no/such/file"]);
        assert!(!place.path("started").exists(), "{option}");
    }
    let output = place.batch(&["--output-dir", "file/dir", "--", "touch", ":::", "started"]);
    refused(&output, &["file/dir"]);
    assert!(!place.path("started").exists());
}
