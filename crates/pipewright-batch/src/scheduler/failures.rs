//! The number of failures at which a batch ends early.

use std::num::NonZeroU64;

use crate::vocabulary::JobOutcome;

/// Rules for failures: `--fail-fast`, `--max-failures`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailurePolicy {
    pub(crate) limit: FailureLimit,
    pub(crate) then: OnLimit,
}

/// Failures that end the batch.
///
/// A failure is a job of this run that ends as `Failed`, `Refused` or `Unknown`. Skipped jobs are none: their cause was
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureLimit {
    Never,
    /// A number of failures. 1 is `--fail-fast`.
    Count(NonZeroU64),
    /// A part of all jobs of this run. While their number is unknown, it is a part of those that were read, and counts from
    /// [`LEAST_FAILURES`] failures on.
    Percent(u8),
}

/// Failures before a percentage of an unknown number of jobs counts. The first job alone is no statistic.
pub(crate) const LEAST_FAILURES: u64 = 3;

/// The reaction to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnLimit {
    /// Let running jobs end, as GNU parallel's `--halt soon`.
    Drain,
    /// Stop running jobs, as GNU parallel's `--halt now`.
    Stop,
}

/// Counts of this run. Jobs that ended in an earlier run are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// The number of all jobs, if it is known.
    pub(super) total: Option<u64>,
    pub(super) added: u64,
    failures: u64,
}

impl Tally {
    pub(super) fn new(total: Option<u64>) -> Tally {
        Tally { total, ..Tally::default() }
    }

    pub(super) fn count(&mut self, outcome: JobOutcome) {
        self.failures += match outcome {
            JobOutcome::Failed | JobOutcome::Refused | JobOutcome::Unknown => 1,
            JobOutcome::Succeeded
            | JobOutcome::Stopped
            | JobOutcome::Skipped
            | JobOutcome::NotRun => 0,
        };
    }

    pub(super) fn reaches(&self, limit: FailureLimit) -> bool {
        match limit {
            FailureLimit::Never => false,
            FailureLimit::Count(count) => self.failures >= count.get(),
            FailureLimit::Percent(percent) => {
                let least = if self.total.is_some() { 1 } else { LEAST_FAILURES };
                let all = u128::from(self.total.unwrap_or(self.added));
                self.failures >= least
                    && u128::from(self.failures) * 100 >= all * u128::from(percent)
            }
        }
    }
}
