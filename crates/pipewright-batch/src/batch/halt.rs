//! The rule by which a batch ends early, in the words of GNU parallel's `--halt`.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A rule by which a batch ends early: `soon,fail=3`, `now,fail=10%`, `now,success=1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltRule {
    /// The ends of jobs that end the batch.
    pub at: HaltAt,
    /// Also stop the jobs that run (`now`), instead of letting them end (`soon`).
    pub stops_running: bool,
}

/// A number of ends of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HaltAt {
    /// Jobs that have failed.
    Failures(NonZeroU64),
    /// Jobs that have failed, in percent of all jobs. While their number is unknown, it is a part of the jobs that were read, and
    /// counts from three failures on.
    FailedPercent(u8),
    /// Jobs that have succeeded.
    Successes(NonZeroU64),
}

/// An error of a [`HaltRule`] as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseHaltRuleError(());

impl FromStr for HaltRule {
    type Err = ParseHaltRuleError;

    fn from_str(text: &str) -> Result<HaltRule, ParseHaltRuleError> {
        let error = ParseHaltRuleError(());
        let (when, what) = text.split_once(',').ok_or(error)?;
        let stops_running = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(error),
        };
        let (word, count) = what.split_once('=').ok_or(error)?;
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = |digits: &str| match digits.parse::<NonZeroU64>() {
            Ok(number) if is_number(digits) => Ok(number),
            _ => Err(error),
        };
        let at = match (word, count.strip_suffix('%')) {
            ("fail", Some(percent)) => match number(percent)?.get() {
                percent @ 1..=100 => HaltAt::FailedPercent(percent as u8),
                _ => return Err(error),
            },
            ("fail", None) => HaltAt::Failures(number(count)?),
            ("success", None) => HaltAt::Successes(number(count)?),
            _ => return Err(error),
        };
        Ok(HaltRule { at, stops_running })
    }
}

impl fmt::Display for ParseHaltRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a rule to halt: write soon,fail=1, now,fail=10% or now,success=1")
    }
}

impl std::error::Error for ParseHaltRuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_words_of_gnu_parallel() {
        let rule = |at, stops_running| Ok(HaltRule { at, stops_running });
        let count = |count| NonZeroU64::new(count).unwrap();
        assert_eq!("soon,fail=1".parse(), rule(HaltAt::Failures(count(1)), false));
        assert_eq!("now,fail=30".parse(), rule(HaltAt::Failures(count(30)), true));
        assert_eq!("soon,fail=100%".parse(), rule(HaltAt::FailedPercent(100), false));
        assert_eq!("now,success=2".parse(), rule(HaltAt::Successes(count(2)), true));
        for text in [
            "",
            "1",
            "now",
            "now,",
            "now,fail",
            "now,fail=",
            "now,fail=0",
            "now,fail=-1",
            "now,fail=+1",
            "now,fail=0%",
            "now,fail=101%",
            "never,fail=1",
            "now,done=1",
            "now,success=10%",
            "now,fail=1.5",
        ] {
            assert!(text.parse::<HaltRule>().is_err(), "{text}");
        }
    }
}
