//! Reports of tests that this machine cannot run.

use std::io::Write as _;

/// Prints that the calling test, or part of it, was skipped, and the reason. The harness captures `eprintln`.
pub(crate) fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one write: the output of other tests goes to the same pipe.
    let line = format!("SKIPPED {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
