//! The examples of the library: each runs to its end and leaves nothing behind.

use pipewright_tests::skip::{is_forced_off, skipped};
use pipewright_tests::{count, isolate, watchdog};

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
#[path = "../../../pipewright/examples/streams.rs"]
mod streams;

type Sample = fn() -> Result<(), Box<dyn std::error::Error>>;

const SAMPLES: [(&str, Sample); 9] = [
    ("capture", capture::main),
    ("child", child::main),
    ("inherit", inherit::main),
    ("lifetime", lifetime::main),
    ("parallel", parallel::main),
    ("process_handle", process_handle::main),
    ("redirect", redirect::main),
    ("run", run::main),
    ("streams", streams::main),
];

#[test]
fn every_sample_runs_to_its_end_and_leaves_nothing_behind() {
    isolate::isolated("samples::every_sample_runs_to_its_end_and_leaves_nothing_behind", || {
        let _watch = watchdog::watch();
        let before = count::handles();
        for (name, sample) in SAMPLES {
            if ["lifetime", "process_handle"].contains(&name) && is_forced_off("pidfd") {
                skipped(&format!("{name}: processes are only opened as pidfds"));
                continue;
            }
            if let Err(error) = sample() {
                panic!("{name}: {error}");
            }
        }
        watchdog::until("every child is reaped", || count::children().is_empty());
        watchdog::until("every handle is closed", || count::handles() == before);
    });
}

#[test]
fn every_example_is_among_the_samples() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pipewright/examples");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, SAMPLES.map(|(name, _)| format!("{name}.rs")));
}
