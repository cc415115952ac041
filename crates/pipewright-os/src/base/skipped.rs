//! Reports of tests that this machine cannot run.

use std::io::Write as _;

/// Prints that the calling test, or part of it, was skipped, and the reason. The harness captures `eprintln`.
pub(crate) fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // Ignored: a closed stderr is no failure of the test.
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED {name}: {why}");
}
