//! The examples of the library: each runs to its end and leaves nothing behind.

use std::thread;
use std::time::{Duration, Instant};

use pipewright::Outcome;
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{count, watchdog};

use super::runner::until_file;

#[path = "../../../pipewright/examples/capture.rs"]
mod capture;
#[path = "../../../pipewright/examples/child.rs"]
mod child;
#[path = "../../../pipewright/examples/inherit.rs"]
mod inherit;
#[path = "../../../pipewright/examples/lifetime.rs"]
mod lifetime;
#[path = "../../../pipewright/examples/parallel.rs"]
mod parallel;
#[path = "../../../pipewright/examples/process_handle.rs"]
mod process_handle;
#[path = "../../../pipewright/examples/redirect.rs"]
mod redirect;
#[path = "../../../pipewright/examples/run.rs"]
mod run;
#[path = "../../../pipewright/examples/runner.rs"]
mod runner;
#[path = "../../../pipewright/examples/session.rs"]
mod session;
#[path = "../../../pipewright/examples/stopping.rs"]
mod stopping;
#[path = "../../../pipewright/examples/streams.rs"]
mod streams;
#[path = "../../../pipewright/examples/terminal.rs"]
mod terminal;

type ExampleMain = fn() -> Result<(), Box<dyn std::error::Error>>;

const SAMPLES: [(&str, ExampleMain); 13] = [
    ("capture", capture::main),
    ("child", child::main),
    ("inherit", inherit::main),
    ("lifetime", lifetime::main),
    ("parallel", parallel::main),
    ("process_handle", process_handle::main),
    ("redirect", redirect::main),
    ("run", run::main),
    ("runner", runner::main),
    ("session", session::main),
    ("stopping", stopping::main),
    ("streams", streams::main),
    ("terminal", terminal::main),
];

#[isolated_test]
fn every_sample_runs_to_its_end_and_leaves_nothing_behind() {
    let before = count::handles();
    for (name, sample) in SAMPLES {
        if ["lifetime", "process_handle"].contains(&name) && is_forced_off("pidfd") {
            skipped(Need::Pidfd, format_args!("{name}: processes are only opened as pidfds"));
            continue;
        }
        if let Err(error) = sample() {
            panic!("{name}: {error}");
        }
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() == before);
}

#[isolated_test]
fn in_the_example_the_first_signal_drains_and_the_second_one_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let jobs = ["ends", "runs", "waits"].map(|name| (name, until_file(dir.path(), name)));
    let run = thread::spawn(move || stopping::run_jobs(2, jobs).map_err(|e| e.to_string()));
    let interrupt = || {
        // Handled by this thread, before `kill` returns.
        // SAFETY: a number.
        assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
    };
    let is_started = |name: &str| path(&format!("{name}.started")).exists();
    watchdog::until("two have started", || is_started("ends") && is_started("runs"));
    // The first one drains: the third job will not be started when there is room for it.
    interrupt();
    std::fs::write(path("ends"), b"").unwrap();
    // The second one stops. Signals that arrive with the first count as that one.
    let first = Instant::now();
    watchdog::until("it counts", || first.elapsed() > Duration::from_millis(150));
    interrupt();
    let (ends, signal) = run.join().unwrap().unwrap();
    let end = |name| ends.iter().find(|(key, _)| *key == name).unwrap().1;
    assert_eq!(end("waits"), None);
    assert_eq!(end("runs"), Some(Outcome::Cancelled));
    assert_eq!(signal, Some(pipewright::Signal::INT));
    assert!(!is_started("waits"));
}

#[watched_test]
fn every_example_is_run_as_a_sample() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pipewright/examples");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, SAMPLES.map(|(name, _)| format!("{name}.rs")));
}
