//! Logs, and batches that are resumed.

use std::fs;
use std::process::Stdio;

use super::super::trees::until;
use super::{Place, err, out, refused};

/// Appends its argument to a file, and succeeds unless there is a file `fail-` with its name.
const NOTE: &str = "echo {} >> ran; test ! -e fail-{}";

fn note(place: &Place, options: &[&str], values: &[&str]) -> std::process::Output {
    let words = ["--", "sh", "-c", NOTE, ":::"];
    place.batch(&[&["--log", "run.db"], options, &words[..], values].concat())
}

#[test]
fn failed_jobs_run_again_only_if_asked() {
    let place = Place::new();
    place.write("fail-a", "");
    assert_eq!(note(&place, &[], &["a", "b"]).status.code(), Some(123));
    fs::remove_file(place.path("fail-a")).unwrap();
    assert_eq!(note(&place, &["--resume"], &["a", "b"]).status.code(), Some(123));
    assert_eq!(place.lines("ran"), ["a", "b"]);
    let again = note(&place, &["--resume", "--retry-failed"], &["a", "b"]);
    assert_eq!(
        (again.status.code(), place.lines("ran")),
        (Some(0), ["a", "a", "b"].map(str::to_owned).to_vec())
    );
}

#[test]
fn what_a_halted_batch_did_not_run_runs_when_it_is_resumed() {
    let place = Place::new();
    place.write("fail-a", "");
    let halted = note(&place, &["-j1", "--fail-fast"], &["a", "b", "c"]);
    assert_eq!((halted.status.code(), place.read("ran")), (Some(123), "a\n".to_owned()));
    assert_eq!(note(&place, &["--resume"], &["a", "b", "c"]).status.code(), Some(123));
    assert_eq!(place.lines("ran"), ["a", "b", "c"]);
}

#[test]
fn a_log_needs_a_directory() {
    let place = Place::new();
    let output = place.batch_of("a\n", &["--log", "no/such/run.db", "echo"]);
    refused(&output, &["cannot create log", "no/such/run.db", "its directory does not exist"]);
}

#[test]
fn a_log_is_continued_only_if_asked_and_only_if_it_is_one() {
    let place = Place::new();
    refused(&note(&place, &["--resume"], &["a"]), &["run.db", "does not exist"]);
    assert!(!place.path("run.db").exists());
    note(&place, &[], &["a"]);
    refused(&note(&place, &[], &["b"]), &["run.db", "exists", "--resume"]);
    place.write("run.db", "some other file\n");
    refused(&note(&place, &[], &["b"]), &["run.db", "exists"]);
    refused(&note(&place, &["--resume"], &["b"]), &["run.db", "is not the log of a batch"]);
    assert_eq!(place.read("run.db"), "some other file\n");
    fs::remove_file(place.path("run.db")).unwrap();
    if place.rows("run.db", "create table own (a)").is_some() {
        refused(&note(&place, &["--resume"], &["b"]), &["run.db", "is not the log of a batch"]);
        assert_eq!(place.rows("run.db", "select name from sqlite_master").unwrap(), ["own"]);
    }
    assert_eq!(place.read("ran"), "a\n");
}

#[test]
fn an_interrupted_job_that_runs_once_is_unknown_until_it_is_asked_for() {
    for once in [true, false] {
        let place = Place::new();
        let script = "echo {} >> ran; test -e end || sleep 600";
        let options: &[&str] = if once { &["--once"] } else { &[] };
        let words = ["--log", "run.db", "--", "sh", "-c", script, ":::", "1"];
        let args = [&["batch", "--quiet"], options, &words[..]].concat();
        let mut killed = place.tool(&args).stdout(Stdio::null()).spawn().unwrap();
        until("the job runs", || place.read("ran") == "1\n");
        killed.kill().unwrap();
        killed.wait().unwrap();
        place.write("end", "");
        let output = place.batch(&[options, &["--resume"], &words[..]].concat());
        if !once {
            assert_eq!((output.status.code(), place.read("ran")), (Some(0), "1\n1\n".to_owned()));
            continue;
        }
        assert_eq!((output.status.code(), place.read("ran")), (Some(123), "1\n".to_owned()));
        assert!(err(&output).contains("job 1 unknown"), "{}", err(&output));
        assert!(err(&output).contains("1 unknown in"), "{}", err(&output));
        let listed = place.tool(&["jobs", "run.db", "--state", "unknown"]).output().unwrap();
        assert!(out(&listed).contains("echo 1 >> ran"), "{}", out(&listed));
        let asked = place.batch(&[&["--once", "--resume", "--rerun-unknown"], &words[..]].concat());
        assert_eq!((asked.status.code(), place.read("ran")), (Some(0), "1\n1\n".to_owned()));
    }
}
