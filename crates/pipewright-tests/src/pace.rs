//! The factor by which this machine is slower than the one that the suites' times are meant for.
//!
//! It applies to every time within which something has to happen, and to every delay that lets something else happen
//! first. A test that asserts a time as the least uses the same value for both.

use std::env::VarError;
use std::sync::LazyLock;
use std::time::Duration;

/// The variable that sets the factor, a whole number. Children read it as well.
pub const VARIABLE: &str = "PIPEWRIGHT_TEST_SCALE";

static SCALE: LazyLock<u32> = LazyLock::new(|| factor(std::env::var(VARIABLE)));

fn factor(found: Result<String, VarError>) -> u32 {
    match &found {
        Err(VarError::NotPresent) => Some(1),
        Ok(text) => text.parse().ok().filter(|factor| (1..=1000).contains(factor)),
        Err(VarError::NotUnicode(_)) => None,
    }
    .unwrap_or_else(|| panic!("{VARIABLE} has to be a whole number from 1 to 1000, not {found:?}"))
}

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

/// Returns a number of rounds: the first on a machine of usual speed, and the second at a scale above 1.
///
/// The rounds are repeated to see rare orders of events, which a slow machine sees in more of its runs.
pub fn rounds(usual: usize, slow: usize) -> usize {
    if scale() == 1 { usual } else { slow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_taken() {
        assert_eq!([Ok("1"), Ok("12")].map(|it| factor(it.map(str::to_owned))), [1, 12]);
        assert_eq!(factor(Err(VarError::NotPresent)), 1);
    }

    #[test]
    #[should_panic(expected = "PIPEWRIGHT_TEST_SCALE has to be a whole number from 1 to 1000")]
    fn a_fraction_is_refused() {
        factor(Ok("1.5".to_owned()));
    }
}
