//! States of jobs, as words of the log.

use crate::scheduler::{Cause, JobEnd};
use crate::vocabulary::{Failure, JobOutcome};

/// The state of a job in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JobState {
    /// It was read, and waits for its start.
    Waiting,
    /// It was started, and has not ended for good: it runs, or waits for another attempt.
    Started,
    /// Its runner ended while it ran, or its output could not be stored. It runs again in a resumed batch.
    Interrupted,
    /// It has ended. A failed one, and no other, has the class of its failure.
    Ended(JobOutcome, Option<Failure>),
}

impl JobState {
    pub(crate) const SUCCEEDED: JobState = JobState::ended(JobOutcome::Succeeded);
    pub(crate) const UNKNOWN: JobState = JobState::ended(JobOutcome::Unknown);

    /// All states, in the order of reports.
    pub(crate) const ALL: [JobState; 15] = [
        JobState::SUCCEEDED,
        JobState::failed(Failure::ExitCode),
        JobState::failed(Failure::TimedOut),
        JobState::failed(Failure::Signalled),
        JobState::failed(Failure::OutOfMemory),
        JobState::failed(Failure::StartFailed),
        JobState::failed(Failure::Lost),
        JobState::ended(JobOutcome::Skipped),
        JobState::ended(JobOutcome::Stopped),
        JobState::ended(JobOutcome::NotRun),
        JobState::Interrupted,
        JobState::UNKNOWN,
        JobState::ended(JobOutcome::Refused),
        JobState::Started,
        JobState::Waiting,
    ];

    /// Returns the state of a job that has ended otherwise than by a failure.
    pub(crate) const fn ended(outcome: JobOutcome) -> JobState {
        JobState::Ended(outcome, None)
    }

    pub(crate) const fn failed(failure: Failure) -> JobState {
        JobState::Ended(JobOutcome::Failed, Some(failure))
    }

    /// Returns the word in the column `state`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Started => "started",
            JobState::Interrupted => "interrupted",
            JobState::Ended(outcome, _) => outcome.name(),
        }
    }

    /// Returns the words of all states, each once, in the order of reports.
    pub(crate) fn words() -> impl Iterator<Item = &'static str> {
        let mut last = "";
        // Those of the classes of a failure are one, and stand together.
        let is_new = move |word: &&'static str| std::mem::replace(&mut last, *word) != *word;
        JobState::ALL.into_iter().map(JobState::name).filter(is_new)
    }

    /// Returns the end. `None`: the job runs, or will run again.
    pub(crate) fn outcome(self) -> Option<JobOutcome> {
        match self {
            JobState::Ended(outcome, _) => Some(outcome),
            _ => None,
        }
    }

    /// Returns the class of its failure, which only failed jobs have: the column `failure`.
    pub(crate) fn failure(self) -> Option<Failure> {
        match self {
            JobState::Ended(_, failure) => failure,
            _ => None,
        }
    }

    /// Returns the state that these columns mean. `None`: no version of the log has such words.
    pub(crate) fn parse(state: &str, failure: Option<&str>) -> Option<JobState> {
        // The most frequent word of a log with a million jobs.
        if state == "succeeded" && failure.is_none() {
            return Some(JobState::SUCCEEDED);
        }
        let mut all = JobState::ALL.into_iter();
        all.find(|it| it.name() == state && it.failure().map(Failure::name) == failure)
    }

    /// Returns true if only another attempt can change the state.
    pub(crate) fn is_final(self) -> bool {
        matches!(
            self.outcome(),
            Some(JobOutcome::Succeeded | JobOutcome::Failed | JobOutcome::Unknown)
        )
    }

    /// Returns the end for the scheduler of a resumed batch. `None`: the job runs again.
    pub(crate) fn past(self) -> Option<JobEnd> {
        let outcome = self.outcome().filter(|_| self.is_final())?;
        Some(JobEnd { outcome, cause: self.failure().map(Cause::Failure) })
    }
}

impl From<&JobEnd> for JobState {
    fn from(end: &JobEnd) -> JobState {
        match end.cause {
            // A success without its output is none, and nothing has failed that a resumed batch would not run again.
            Some(Cause::Unstored) => JobState::Interrupted,
            Some(Cause::Failure(failure)) => JobState::Ended(end.outcome, Some(failure)),
            Some(Cause::After(_) | Cause::Refusal(_)) | None => JobState::ended(end.outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_read_back_from_its_words() {
        for state in JobState::ALL {
            assert_eq!(
                JobState::parse(state.name(), state.failure().map(Failure::name)),
                Some(state)
            );
        }
        assert_eq!(JobState::parse("succeeded", Some("lost")), None);
        assert_eq!(JobState::parse("failed", None), None);
        assert_eq!(JobState::parse("", None), None);
    }

    #[test]
    fn each_end_and_each_class_of_failure_has_a_state() {
        for outcome in JobOutcome::ALL {
            assert!(JobState::ALL.iter().any(|it| it.outcome() == Some(outcome)), "{outcome:?}");
        }
        for failure in Failure::ALL {
            assert!(JobState::ALL.contains(&JobState::failed(failure)), "{failure:?}");
        }
    }

    #[test]
    fn each_word_is_told_once() {
        let words: Vec<_> = JobState::words().collect();
        for (index, word) in words.iter().enumerate() {
            assert!(!words[..index].contains(word), "{word}");
        }
        assert!(JobState::ALL.iter().all(|state| words.contains(&state.name())));
    }

    #[test]
    fn a_class_of_failure_belongs_to_a_failure_only() {
        for state in JobState::ALL {
            let is_failed = state.outcome() == Some(JobOutcome::Failed);
            assert_eq!(state.failure().is_some(), is_failed, "{state:?}");
        }
    }
}
