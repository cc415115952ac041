//! The factor by which this machine is slower than the one that the suites' times are meant for.
//!
//! It applies to every time within which something has to happen, and to every delay that lets something else happen
//! first. A test that asserts a time as the least uses the same value for both.

use std::sync::LazyLock;
use std::time::Duration;

/// The variable that sets the factor, a whole number. Children read it as well.
pub const VARIABLE: &str = "PIPEWRIGHT_TEST_SCALE";

static SCALE: LazyLock<u32> = LazyLock::new(|| match std::env::var(VARIABLE) {
    Err(std::env::VarError::NotPresent) => 1,
    found => {
        let factor = found.as_ref().ok().and_then(|text| text.parse().ok());
        let is_factor = |factor: &u32| (1..=1000).contains(factor);
        factor.filter(is_factor).unwrap_or_else(|| {
            panic!("{VARIABLE} has to be a whole number from 1 to 1000, not {found:?}")
        })
    }
});

/// Returns the factor: `PIPEWRIGHT_TEST_SCALE`, or 1.
pub fn scale() -> u32 {
    *SCALE
}

/// Returns that time for this machine.
pub fn scaled(time: Duration) -> Duration {
    time * scale()
}

/// Returns that many milliseconds for this machine.
pub fn millis(millis: u64) -> Duration {
    scaled(Duration::from_millis(millis))
}

/// Returns that many seconds for this machine.
pub fn seconds(seconds: u64) -> Duration {
    scaled(Duration::from_secs(seconds))
}

/// Returns the number of rounds of a test for this machine: fewer if it is slow, and at least one. The ends that
/// the rounds look for differ from run to run, so that a slow machine finds the same ones in more runs.
pub fn rounds(rounds: usize) -> usize {
    (rounds / scale() as usize).max(1)
}
