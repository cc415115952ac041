//! The times of a slow machine, as in the suites of the libraries, and reports of skipped tests.

use std::time::Duration;

pub(super) use pipewright_os::base::skipped::{Need, skipped};

/// Returns that many milliseconds, times the factor `PIPEWRIGHT_TEST_SCALE`, a whole number.
pub(super) fn millis(millis: u64) -> Duration {
    let factor = match std::env::var("PIPEWRIGHT_TEST_SCALE") {
        Ok(text) => text.parse::<u32>().ok().filter(|factor| (1..=1000).contains(factor)),
        Err(_) => Some(1),
    };
    Duration::from_millis(millis)
        * factor.expect("PIPEWRIGHT_TEST_SCALE is a whole number from 1 to 1000")
}

/// Returns true, with a message, if this system does not have that file.
#[cfg(unix)]
pub(super) fn lacks(file: &str) -> bool {
    let is_there = std::path::Path::new(file).exists();
    if !is_there {
        skipped(Need::File(file), "is not here");
    }
    !is_there
}

/// Returns true, with a message, on a system that does not tell what a test needs to know about other processes.
#[cfg(unix)]
pub(super) fn lacks_proc() -> bool {
    lacks("/proc/self/stat")
}

/// Returns it as the value of an option.
#[cfg(unix)]
pub(super) fn option(millis: u64) -> String {
    format!("{}ms", self::millis(millis).as_millis())
}
