//! A failed run as an error: its limit, and its output so far.

use std::time::Duration;

use pipewright::{CancelToken, Error, ErrorKind, Event, Exceeded, Limit, Outcome, Stdio};
use pipewright_test_macros::watched_test;

use super::async_verbs::one_thread;
use super::{later, puppet};

#[track_caller]
fn facts(error: &Error) -> (Outcome, Option<Exceeded>, &str, &str) {
    let ErrorKind::Failed { outcome, exceeded, stdout_tail, stderr_tail, .. } = error.kind() else {
        panic!("{error:?}");
    };
    (*outcome, *exceeded, stdout_tail, stderr_tail)
}

#[watched_test]
fn checked_passes_success_and_turns_failure_into_an_error() {
    assert_eq!(puppet(["out=hi"]).capture().unwrap().check().unwrap().stdout, "hi");
    assert_eq!(puppet(["out=hi"]).output().unwrap().check().unwrap().stdout, b"hi");
    let mut fails = puppet(["out=said", "err=first\nlast words\n", "exit=3"]);
    let of_read = fails.read().unwrap_err();
    let checked = [
        fails.capture().unwrap().check().unwrap_err(),
        fails.output().unwrap().check().unwrap_err(),
        one_thread().block_on(fails.output_async()).unwrap().check().unwrap_err(),
    ];
    // "exit status: 3"; Windows: "exit code: 3".
    let status = fails.status().unwrap();
    let words = format!("failed: {status}: last words");
    assert!(of_read.to_string().ends_with(&words), "{of_read}");
    for error in checked {
        assert_eq!((error.to_string(), error.kind()), (of_read.to_string(), of_read.kind()));
        assert_eq!(error.program(), of_read.program());
        assert_eq!(facts(&error), (Outcome::Exited, None, "said", "first\nlast words\n"));
    }
    let ending = fails.lines().unwrap().finish().unwrap();
    let error = ending.check().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
    let Some(Ok(Event::Exited(ending))) = fails.events().unwrap().last() else { panic!() };
    assert_eq!(ending.check().unwrap_err().program(), of_read.program());
}

#[watched_test]
fn an_error_quotes_the_last_line_of_merged_output() {
    let said = "out=one\n";
    let mut fails = puppet([said, "err=no disk\n", "exit=3"]);
    fails.merge_stderr();
    let status = fails.status().unwrap();
    let merged = fails.stdout(Stdio::piped()).spawn().unwrap().read_all_text().unwrap();
    let errors = [
        fails.read().unwrap_err(),
        fails.capture().unwrap().check().unwrap_err(),
        one_thread().block_on(fails.output_async()).unwrap().check().unwrap_err(),
        merged.check().unwrap_err(),
        (puppet(["exit=0"]) | &mut fails).read().unwrap_err(),
    ];
    for error in errors {
        let words = format!("failed: {status}: no disk");
        assert!(error.to_string().ends_with(&words), "{error}");
        let both = "one\nno disk\n";
        assert_eq!(facts(&error), (Outcome::Exited, None, both, both));
    }
    // Another stage failed: the last one's output is not its reason.
    let error = (puppet(["exit=3"]) | puppet([said]).merge_stderr()).read().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
    // Without the merge, stdout is not a reason: the child's stderr has gone elsewhere.
    let mut silent = puppet([said, "exit=3"]);
    let error = silent.stderr(Stdio::null()).read().unwrap_err();
    assert!(error.to_string().ends_with(&format!("failed: {status}")), "{error}");
}

#[watched_test]
fn a_timeout_error_has_its_limit_and_the_output_so_far() {
    let mut command = puppet(["out=one\ntwo\n", "wait=600"]);
    let error = command.timeout(later()).read().unwrap_err();
    let words = format!("failed: timed out after {:?}: two", later());
    assert!(error.to_string().ends_with(&words), "{error}");
    let limit = Some(Exceeded::Time(later()));
    assert_eq!(facts(&error), (Outcome::TimedOut, limit, "one\ntwo\n", ""));
    let capture = command.capture().unwrap();
    assert_eq!(capture.exceeded, limit);
    assert_eq!(capture.check().unwrap_err().to_string(), error.to_string());
    // Its stderr says more.
    let mut command = puppet(["out=one\n", "err=oh\n", "wait=600"]);
    let error = command.idle_timeout(later()).read().unwrap_err();
    let words = format!("failed: timed out after {:?} without output: oh", later());
    assert!(error.to_string().ends_with(&words), "{error}");
    assert_eq!(facts(&error).1, Some(Exceeded::Silence(later())));
}

#[watched_test]
fn other_limits_are_named_in_their_errors() {
    let mut command = puppet(["out=12345678901", "wait=600"]);
    let error = command.limit(Limit::fail(10)).capture().unwrap().check().unwrap_err();
    let words = "failed: exceeded its output limit of 10 bytes: 1234567890";
    assert!(error.to_string().ends_with(words), "{error}");
    assert_eq!(facts(&error).1, Some(Exceeded::Bytes(10)));
    let token = CancelToken::new();
    token.cancel();
    let error = puppet(["wait=600"]).cancel(&token).output().unwrap().check().unwrap_err();
    assert!(error.to_string().ends_with("failed: cancelled"), "{error}");
    assert_eq!((facts(&error).0, facts(&error).1), (Outcome::Cancelled, None));
}

#[watched_test]
fn an_error_line_is_bounded_and_its_facts_are_complete() {
    let mut command = puppet(["out=first\n", "out-xs=100000", "out=\n", "wait=600"]);
    let error = command.timeout(later()).read().unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n') && text.ends_with(&"x".repeat(200)), "{text}");
    let rest = text.rsplit(": ").next().unwrap();
    assert_eq!(rest.len(), 200);
    assert_eq!(facts(&error).2.len(), 64 << 10);
}

#[watched_test]
fn a_pipeline_names_the_stage_that_failed_or_all_that_were_stopped() {
    let mut pipeline = puppet(["err=oh\n", "exit=3"]) | puppet(["cat"]);
    let capture = pipeline.capture().unwrap();
    let error = capture.check().unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(&format!("failed: {}: oh", puppet(["exit=3"]).status().unwrap())),
        "{error}"
    );
    assert!(!error.to_string().contains('|'), "{error}");
    let mut pipeline = puppet(["out=x\n", "wait=600"]) | puppet(["cat"]);
    let output = pipeline.timeout(later()).output().unwrap();
    let error = output.check().unwrap_err();
    assert!(error.to_string().contains(" | "), "{error}");
    assert!(error.to_string().ends_with(&format!("timed out after {:?}: x", later())), "{error}");
}

#[watched_test]
fn an_exit_is_described_in_one_line() {
    let shown = |acts: &[&str]| puppet(acts).lines().unwrap().finish().unwrap().to_string();
    let line = shown(&["exit=1"]);
    assert!(line.starts_with("exited with code 1 after "), "{line}");
    if !cfg!(windows) {
        let line = shown(&["raise=KILL"]);
        assert!(line.starts_with("killed by SIGKILL after "), "{line}");
    }
    let mut command = puppet(["wait=600"]);
    let ending = command.timeout(later()).lines().unwrap().finish().unwrap();
    let line = ending.to_string();
    assert!(line.starts_with(&format!("timed out after {:?}, ended after ", later())), "{line}");
    assert!(ending.elapsed >= later());
    let mut command = puppet(["out=12345", "wait=600"]);
    let line = command.limit(Limit::fail(1)).lines().unwrap().finish().unwrap().to_string();
    assert!(line.starts_with("exceeded its output limit of 1 byte, ended after "), "{line}");
    assert_eq!(Exceeded::Time(Duration::from_millis(1500)).to_string(), "timed out after 1.5s");
}
