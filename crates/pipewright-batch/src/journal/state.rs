//! States of jobs, as words of the log.

use crate::scheduler::{Outcome, Past};
use crate::vocabulary::Failure;

/// The state of a job in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JobState {
    /// It was read, and waits for its start.
    Waiting,
    /// It was started, and has not ended for good: it runs, or waits for another attempt.
    Started,
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt failed.
    Failed(Failure),
    /// It was stopped because the batch ended early.
    Stopped,
    /// It was not started, because a job in its `after` did not succeed.
    Skipped,
    /// It was not started, because the batch ended early.
    NotRun,
    /// Its runner ended while it ran, or its output could not be stored. It runs again in a resumed batch.
    Interrupted,
    /// It may have run to its end, and must not run twice.
    Unknown,
    /// It can never start.
    Refused,
}

impl JobState {
    /// All states, in the order of reports.
    pub(crate) const ALL: [JobState; 15] = [
        JobState::Waiting,
        JobState::Started,
        JobState::Succeeded,
        JobState::Failed(Failure::ExitCode),
        JobState::Failed(Failure::TimedOut),
        JobState::Failed(Failure::Signalled),
        JobState::Failed(Failure::OutOfMemory),
        JobState::Failed(Failure::StartFailed),
        JobState::Failed(Failure::Lost),
        JobState::Stopped,
        JobState::Skipped,
        JobState::NotRun,
        JobState::Interrupted,
        JobState::Unknown,
        JobState::Refused,
    ];

    /// Returns the word in the column `state`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Started => "started",
            JobState::Succeeded => "succeeded",
            JobState::Failed(_) => "failed",
            JobState::Stopped => "stopped",
            JobState::Skipped => "skipped",
            JobState::NotRun => "not_run",
            JobState::Interrupted => "interrupted",
            JobState::Unknown => "unknown",
            JobState::Refused => "refused",
        }
    }

    /// Returns the word in the column `failure`, which only failed jobs have.
    #[must_use]
    pub(crate) fn failure_name(self) -> Option<&'static str> {
        let JobState::Failed(failure) = self else { return None };
        Some(failure.name())
    }

    /// Returns the state that these columns mean. `None`: no version of the log has such words.
    pub(crate) fn parse(state: &str, failure: Option<&str>) -> Option<JobState> {
        // The most frequent word of a log with a million jobs.
        if state == "succeeded" && failure.is_none() {
            return Some(JobState::Succeeded);
        }
        let mut all = JobState::ALL.into_iter();
        all.find(|it| it.name() == state && it.failure_name() == failure)
    }

    /// Returns true if only another attempt can change the state.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed(_) | JobState::Unknown)
    }

    /// Returns the end for the scheduler of a resumed batch. `None`: the job runs again.
    pub(crate) fn past(self) -> Option<Past> {
        match self {
            JobState::Succeeded => Some(Past::Succeeded),
            JobState::Failed(failure) => Some(Past::Failed(failure)),
            JobState::Unknown => Some(Past::Unknown),
            _ => None,
        }
    }
}

impl From<&Outcome> for JobState {
    fn from(outcome: &Outcome) -> JobState {
        match outcome {
            Outcome::Succeeded => JobState::Succeeded,
            Outcome::Failed(failure) => JobState::Failed(*failure),
            Outcome::Stopped => JobState::Stopped,
            Outcome::Skipped { .. } => JobState::Skipped,
            Outcome::NotRun => JobState::NotRun,
            Outcome::Unstored => JobState::Interrupted,
            Outcome::Unknown => JobState::Unknown,
            Outcome::Refused(_) => JobState::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_read_back_from_its_words() {
        for state in JobState::ALL {
            assert_eq!(JobState::parse(state.name(), state.failure_name()), Some(state));
        }
        assert_eq!(JobState::parse("succeeded", Some("lost")), None);
        assert_eq!(JobState::parse("failed", None), None);
        assert_eq!(JobState::parse("", None), None);
    }

    #[test]
    fn each_class_of_failure_has_a_state() {
        for failure in Failure::ALL {
            assert!(JobState::ALL.contains(&JobState::Failed(failure)), "{failure:?}");
        }
    }
}
