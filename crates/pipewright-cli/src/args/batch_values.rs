//! Values of the options of `batch`.

use std::str::FromStr;
use std::thread;

/// A number of jobs: `8`, `50%` of the processors, or `+2` more than them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobCount {
    Fixed(u32),
    Percent(u32),
    More(u32),
}

impl JobCount {
    /// Returns the number on this machine, at least 1. Affinity and the quota of a cgroup count.
    pub(crate) fn resolve(self) -> u32 {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let count = match self {
            JobCount::Fixed(count) => count,
            JobCount::Percent(percent) => {
                let count = (u64::from(processors) * u64::from(percent)).div_ceil(100);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            JobCount::More(more) => processors.saturating_add(more),
        };
        count.max(1)
    }
}

impl FromStr for JobCount {
    type Err = String;

    fn from_str(text: &str) -> Result<JobCount, String> {
        let refuse = || format!("\"{text}\" is not a number of jobs: write 8, 150% or +2");
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| refuse()),
            false => Err(refuse()),
        };
        let count = if let Some(percent) = text.strip_suffix('%') {
            JobCount::Percent(number(percent)?)
        } else if let Some(more) = text.strip_prefix('+') {
            JobCount::More(number(more)?)
        } else {
            JobCount::Fixed(number(text)?)
        };
        match count {
            JobCount::Fixed(0) | JobCount::Percent(0) => Err("must be at least 1".to_owned()),
            count => Ok(count),
        }
    }
}

/// `NAME=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenCount {
    pub(crate) name: String,
    pub(crate) count: u32,
}

impl FromStr for TokenCount {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenCount, String> {
        let refuse = || format!("\"{text}\" names no tokens: write NAME=N, as in link=2");
        let (name, count) = text.split_once('=').ok_or_else(refuse)?;
        let count = count.parse().map_err(|_| refuse())?;
        if name.is_empty() || count == 0 {
            return Err(refuse());
        }
        Ok(TokenCount { name: name.to_owned(), count })
    }
}

/// A number of failures, or a percentage of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureCount {
    Count(u64),
    Percent(u8),
}

impl FromStr for FailureCount {
    type Err = String;

    fn from_str(text: &str) -> Result<FailureCount, String> {
        let refuse = || format!("\"{text}\" is not a number of failures: write 10 or 5%");
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse().map_err(|_| refuse())? {
                percent @ 1..=100 => Ok(FailureCount::Percent(percent)),
                _ => Err(refuse()),
            },
            None => match text.parse().map_err(|_| refuse())? {
                0 => Err(refuse()),
                count => Ok(FailureCount::Count(count)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_jobs_are_parsed() {
        assert_eq!("8".parse(), Ok(JobCount::Fixed(8)));
        assert_eq!("150%".parse(), Ok(JobCount::Percent(150)));
        assert_eq!("+2".parse(), Ok(JobCount::More(2)));
        for text in ["", "0", "0%", "-1", "%", "+", "+-1", "1.5", "99999999999", "++1"] {
            assert!(text.parse::<JobCount>().is_err(), "{text}");
        }
        assert!(JobCount::Percent(1).resolve() >= 1);
        assert_eq!(JobCount::More(1).resolve(), JobCount::More(0).resolve() + 1);
    }

    #[test]
    fn tokens_and_failures_are_parsed() {
        assert_eq!("link=2".parse(), Ok(TokenCount { name: "link".to_owned(), count: 2 }));
        for text in ["link", "=2", "link=0", "link=x", "link=-1"] {
            assert!(text.parse::<TokenCount>().is_err(), "{text}");
        }
        assert_eq!("10".parse(), Ok(FailureCount::Count(10)));
        assert_eq!("5%".parse(), Ok(FailureCount::Percent(5)));
        for text in ["", "0", "0%", "101%", "-1", "x"] {
            assert!(text.parse::<FailureCount>().is_err(), "{text}");
        }
    }
}
