//! Limits on the kept part of a stream.

use pipewright::{Command, ErrorKind, Limit, Outcome, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, pace};

use super::{flood, puppet};

#[watched_test]
fn head_and_tail_are_kept_and_the_child_runs_to_its_end() {
    let all = flood(2_000_000);
    for limit in [0, 1, 1000, 100_000] {
        let mut command = puppet(["out-bytes=2000000", "err=fits"]);
        let head = command.limit(Limit::keep_head(limit)).output().unwrap();
        assert!(head.stdout == all[..limit]);
        let tail = command.limit(Limit::keep_tail(limit)).output().unwrap();
        assert!(tail.stdout == all[all.len() - limit..]);
        for output in [head, tail] {
            assert!(output.truncated && output.status.success());
            assert_eq!((output.outcome, output.stdout_bytes), (Outcome::Exited, Some(2_000_000)));
        }
    }
    let fits = puppet(["out=abc"]).limit(Limit::keep_tail(3)).output().unwrap();
    assert_eq!((fits.stdout.as_slice(), fits.truncated), (&b"abc"[..], false));
}

#[watched_test]
fn fail_stops_the_child_and_keeps_what_fits() {
    let mut command = puppet(["out=12345", "wait=600"]);
    let capture = command.limit(Limit::fail(3)).capture().unwrap();
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::LimitExceeded, "123"));
    assert!(!capture.success() && capture.truncated);
    assert!(!alive::is_running(capture.pid));
    // Also if the child has exited before the first read.
    let capture = puppet(["out=12345"]).limit(Limit::fail(4)).capture().unwrap();
    assert_eq!(capture.outcome, Outcome::LimitExceeded);
    let capture = puppet(["out=12345"]).limit(Limit::fail(5)).capture().unwrap();
    assert_eq!((capture.outcome, capture.truncated), (Outcome::Exited, false));
    let error = puppet(["out=12345"]).limit(Limit::fail(4)).read().unwrap_err();
    let words = "failed: exceeded its output limit of 4 bytes: 1234";
    assert!(error.to_string().ends_with(words), "{error}");
}

#[watched_test]
fn fail_passes_no_byte_beyond_the_limit_to_a_tee() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    for limit in [Limit::fail(1000), Limit::fail(1000).count_only()] {
        let mut command = puppet(["out-bytes=300000", "wait=600"]);
        let output = command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(limit).output();
        assert_eq!(output.unwrap().outcome, Outcome::LimitExceeded);
        assert!(std::fs::read(&path).unwrap() == flood(1000), "{limit:?}");
    }
    // Output that just fits is passed on whole.
    let mut command = puppet(["out-bytes=1000"]);
    command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(Limit::fail(1000));
    assert_eq!(command.output().unwrap().outcome, Outcome::Exited);
    assert!(std::fs::read(&path).unwrap() == flood(1000));
    // A limit that stops nothing does not limit the tee either.
    let mut command = puppet(["out-bytes=3000"]);
    command.stdout(Stdio::tee_to(Stdio::create(&path))).limit(Limit::keep_head(1000));
    assert!(command.output().unwrap().truncated);
    assert!(std::fs::read(&path).unwrap() == flood(3000));
}

#[watched_test]
fn fail_stops_the_child_whatever_the_verb_keeps() {
    let is_stopped = |command: &mut Command| {
        let error = command.limit(Limit::fail(3)).run().unwrap_err();
        let ErrorKind::Failed { outcome, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*outcome, Outcome::LimitExceeded, "{error}");
    };
    is_stopped(puppet(["out=12345", "wait=600"]).stdout(Stdio::piped()));
    is_stopped(puppet(["err=12345", "wait=600"]).stderr(Stdio::piped()));
    let mut command = puppet(["out=12345", "wait=600"]);
    let status = command.stdout(Stdio::piped()).limit(Limit::fail(3)).status().unwrap();
    assert!(!status.success(), "{status}");
    let last = puppet(["out=12345", "wait=600"]).stdout(Stdio::piped()).owned();
    let error = (puppet(["out="]) | last).limit(Limit::fail(3)).run().unwrap_err();
    assert!(error.to_string().ends_with("failed: exceeded its output limit of 3 bytes"), "{error}");
    // A tail limit stops no child here either, and the error has the whole end of stderr.
    let mut command = puppet(["err=12345", "exit=3"]);
    let error = command.stderr(Stdio::piped()).limit(Limit::keep_head(3)).run().unwrap_err();
    assert!(error.to_string().ends_with("12345"), "{error}");
}

#[isolated_test]
fn memory_stays_bounded_whatever_the_child_writes() {
    let before = count::rss_bytes();
    // Wine moves a few megabytes in a second.
    let bytes = if cfg!(windows) { 30_000_000 } else { pace::rounds(300_000_000, 60_000_000) };
    for limit in [Limit::keep_head(10_000), Limit::keep_tail(10_000)] {
        let output = puppet([format!("out-bytes={bytes}")]).limit(limit).output().unwrap();
        assert_eq!(output.stdout_bytes, Some(bytes as u64));
    }
    let grown = count::rss_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
}
