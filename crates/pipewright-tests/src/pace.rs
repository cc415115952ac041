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

/// Returns a number of rounds: the first in a long run (`PIPEWRIGHT_NET=all`), a quarter of it in a short one, and the
/// second at a scale above 1, which is also the least.
///
/// The rounds are repeated to see rare orders of events. A slow machine sees them in more of its runs, and a gate that
/// runs often in one of its runs.
pub fn rounds(long: usize, slow: usize) -> usize {
    let is_long = std::env::var_os("PIPEWRIGHT_NET").is_some_and(|value| value == "all");
    rounds_of(long, slow, is_long, scale())
}

fn rounds_of(long: usize, slow: usize, is_long: bool, scale: u32) -> usize {
    match (scale, is_long) {
        (1, true) => long,
        // A slow machine may need more of them: then as many as in a long run.
        (1, false) => (long / 4).max(slow).min(long),
        _ => slow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_fewer_rounds() {
        assert_eq!([rounds_of(800, 20, true, 1), rounds_of(800, 20, false, 1)], [800, 200]);
        assert_eq!([rounds_of(50, 20, false, 1), rounds_of(20, 200, false, 1)], [20, 20]);
        assert_eq!([rounds_of(800, 20, true, 5), rounds_of(800, 20, false, 5)], [20, 20]);
    }

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
