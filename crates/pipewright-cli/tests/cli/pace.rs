//! The times of a slow machine, as in the suites of the libraries, and reports of skipped tests.

use std::io::Write as _;
use std::time::Duration;

/// Returns that many milliseconds, times the factor `PIPEWRIGHT_TEST_SCALE`, a whole number.
pub(super) fn millis(millis: u64) -> Duration {
    let factor = match std::env::var("PIPEWRIGHT_TEST_SCALE") {
        Ok(text) => text.parse::<u32>().ok().filter(|factor| (1..=1000).contains(factor)),
        Err(_) => Some(1),
    };
    Duration::from_millis(millis)
        * factor.expect("PIPEWRIGHT_TEST_SCALE is a whole number from 1 to 1000")
}

/// Returns it as the value of an option.
#[cfg(unix)]
pub(super) fn option(millis: u64) -> String {
    format!("{}ms", self::millis(millis).as_millis())
}

/// Prints that the calling test, or part of it, was skipped, and the reason. The harness captures `eprintln`.
pub(super) fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one write: the output of other tests goes to the same pipe.
    let line = format!("SKIPPED {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
