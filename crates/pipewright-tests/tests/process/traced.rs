//! Starts, stops and ends of processes as spans and events of `tracing`.

use pipewright::{Command, Contain, Stdio};
use pipewright_test_macros::isolated_test;
use pipewright_tests::pace;
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::traced::TraceLines;

use super::{puppet, short, with_time};

/// Runs a test in a process of its own, as a subscriber is of the whole process.
fn listening(body: impl FnOnce(&TraceLines)) {
    body(&TraceLines::listen("pipewright"));
}

/// The span of that process, as at the end of each of its lines.
fn span(pid: u32) -> String {
    format!("[process pid={pid} program=")
}

#[isolated_test]
fn a_capture_has_a_span_with_a_start_and_an_end() {
    listening(|lines| {
        let done = puppet(["out=hi", "exit=3"]).secret_arg("swordfish").capture().unwrap();
        let span = span(done.pid);
        assert!(lines.find(&["DEBUG message=started", &span]), "{:#?}", lines.lines());
        assert_eq!(lines.count(&["DEBUG message=ended", &span]), 1, "{:#?}", lines.lines());
        assert!(
            lines.find(&["message=run ended", "outcome=exited", &span]),
            "{:#?}",
            lines.lines()
        );
        assert!(!lines.find(&["swordfish"]), "{:#?}", lines.lines());
    });
}

#[isolated_test]
fn a_status_and_a_wait_have_one_end_each() {
    listening(|lines| {
        puppet(["exit=0"]).status().unwrap();
        assert_eq!(lines.count(&["message=ended"]), 1, "{:#?}", lines.lines());
        let child = puppet(["exit=0"]).spawn().unwrap();
        child.wait().unwrap();
        child.wait().unwrap();
        drop(child);
        assert_eq!(lines.count(&["message=ended"]), 2, "{:#?}", lines.lines());
        assert!(!lines.find(&["dropped while running"]), "{:#?}", lines.lines());
    });
}

#[isolated_test]
fn a_timeout_records_why_it_stops_and_kills() {
    listening(|lines| {
        let mut command = puppet(["ignore=TERM", "out=ready", "wait=600"]);
        command.kill_grace(pace::millis(100));
        let done = with_time(short(), |time| {
            Some(command.timeout(time).capture().unwrap()).filter(|done| done.stdout == "ready")
        });
        let span = span(done.pid);
        // Windows: a child without a group of its own cannot be asked.
        let stopping = ["INFO message=stopping", "signal=SIGTERM", "reason=timed out", &span];
        assert!(cfg!(windows) || lines.find(&stopping), "{:#?}", lines.lines());
        let killing = ["INFO message=killing", "reason=timed out", &span];
        assert!(lines.find(&killing), "{:#?}", lines.lines());
        let ended = ["message=run ended", "outcome=timed out", &span];
        assert!(lines.find(&ended), "{:#?}", lines.lines());
    });
}

#[isolated_test]
fn a_start_that_fails_records_the_error() {
    listening(|lines| {
        Command::new("no-such-program").arg("secret").status().unwrap_err();
        let words = ["DEBUG message=not started", "no-such-program", "not found in PATH"];
        assert!(lines.find(&words), "{:#?}", lines.lines());
    });
}

#[isolated_test]
fn leftovers_of_a_tree_are_counted() {
    listening(|lines| {
        let mut command = puppet(["spawn=wait=20", "exit=0"]);
        let done = command.contain(Contain::Tree).stdout(Stdio::null()).capture().unwrap();
        if done.leftovers_killed == 0 {
            skipped(Need::Supervisor, "trees are not contained here");
            return;
        }
        let words = ["WARN message=leftovers killed", "count=1 ", &span(done.pid)];
        assert!(lines.find(&words), "{:#?}", lines.lines());
    });
}

#[isolated_test]
fn each_stage_of_a_pipeline_has_a_span() {
    listening(|lines| {
        let mut pipeline = puppet(["out=hi", "exit=0"]) | puppet(["cat", "exit=2"]);
        let done = pipeline.capture().unwrap();
        for stage in &done.stages {
            let words = ["message=ended", &span(stage.pid)];
            assert_eq!(lines.count(&words), 1, "{:#?}", lines.lines());
        }
    });
}

#[isolated_test]
fn a_child_that_is_dropped_while_it_runs_is_recorded() {
    listening(|lines| {
        let mut child = puppet(["cat"]).stdin(Stdio::piped()).spawn().unwrap();
        // The child ends with its input, after the drop.
        let (stdin, pid) = (child.stdin.take(), child.id());
        drop(child);
        assert!(lines.find(&["dropped while running", &span(pid)]), "{:#?}", lines.lines());
        drop(stdin);
    });
}
