//! Retries: which failures are tried again, and after which delay.

use std::time::Duration;

use super::event::JobNumber;
use crate::vocabulary::Failure;

/// Rules for another attempt. Each job has its own number of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    pub(crate) on: FailureSet,
    /// The delay before the first retry. It doubles with each further one.
    pub(crate) delay: Duration,
    /// The longest delay, before jitter, which only shortens it. Equal to `delay`: all delays are the same.
    pub(crate) max_delay: Duration,
    pub(crate) jitter: Jitter,
}

/// Random parts of a delay, so that jobs that failed together are not retried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jitter {
    #[cfg(test)]
    None,
    /// From half of the delay to all of it.
    Equal,
    /// From nothing to all of the delay.
    #[cfg(test)]
    Full,
}

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureSet(u8);

impl FailureSet {
    pub(crate) fn contains(self, failure: Failure) -> bool {
        self.0 & FailureSet::bit(failure) != 0
    }

    fn bit(failure: Failure) -> u8 {
        1 << failure as u8
    }
}

impl FromIterator<Failure> for FailureSet {
    fn from_iter<I: IntoIterator<Item = Failure>>(failures: I) -> FailureSet {
        FailureSet(failures.into_iter().fold(0, |set, failure| set | FailureSet::bit(failure)))
    }
}

impl RetryPolicy {
    /// Returns the delay before that retry, from 1. It depends only on the arguments, not on what happened before.
    pub(crate) fn delay(&self, seed: u64, job: JobNumber, retry: u32) -> Duration {
        let doublings = retry.saturating_sub(1).min(31);
        let delay = self.delay.saturating_mul(1 << doublings).min(self.max_delay);
        // 584 years are enough.
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let random = mixed(mixed(mixed(seed) ^ job.0) ^ u64::from(retry));
        let part = |of: u64| {
            let below = ((u128::from(of) + 1) * u128::from(random)) >> 64;
            u64::try_from(below).unwrap_or(of)
        };
        Duration::from_nanos(match self.jitter {
            #[cfg(test)]
            Jitter::None => nanos,
            Jitter::Equal => nanos - nanos / 2 + part(nanos / 2),
            #[cfg(test)]
            Jitter::Full => part(nanos),
        })
    }
}

/// Mixes the bits of a number (splitmix64).
pub(super) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
