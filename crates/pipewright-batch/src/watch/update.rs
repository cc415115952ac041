//! Updates: everything that a report of a running batch can show.

use std::time::SystemTime;

use crate::executor::{AttemptEnd, AttemptKey};
use crate::scheduler::Outcome;

/// The facts about a batch that are known when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchFacts {
    /// The command line, for people.
    pub(crate) command: String,
    /// The number of slots.
    pub(crate) slots: u32,
    /// The time at which it began.
    pub(crate) started: SystemTime,
    /// The path of the log.
    pub(crate) log: Option<String>,
}

/// Something that happened in a batch. Bytes of a text that are not Unicode were replaced; otherwise it is as the job
/// has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Update<'a> {
    /// The batch begins. The first update.
    Began(&'a BatchFacts),
    /// Jobs of this input ended in an earlier run. They count as done.
    Resumed { jobs: u64 },
    /// Jobs were read. `total`: the number of all jobs, if it is known before the end of the input.
    Added { jobs: u64, total: Option<u64> },
    /// An attempt started in that slot. `text` is its command.
    Started { key: AttemptKey, slot: u32, text: &'a str },
    /// An attempt ended. `last_lines` is the end of its output, if that is known.
    Ended { end: &'a AttemptEnd, text: &'a str, last_lines: &'a str },
    /// A job has failed and will be tried again.
    Retried { job: u64 },
    /// A job is over. `reason` is one line, if there is more to say than the state.
    Settled { job: u64, state: JobState, reason: Option<&'a str> },
    /// The batch ends early, for that reason.
    Halted { cause: &'a str },
    /// The number of slots has changed.
    Capacity { slots: u32 },
    /// The input has ended, and had that many jobs.
    InputEnded { total: u64 },
    /// A message for people.
    Note(&'a str),
    /// The batch is over. The last update.
    Finished(&'a Totals),
}

/// The counts of a batch that is over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Totals {
    /// The exit code of the tool, unless a signal ends it. `None`: the log or the output could not be written.
    pub(crate) exit_code: Option<i32>,
    /// `finished`, or the name of the reason for an early end.
    pub(crate) how: &'static str,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) stopped: u64,
    pub(crate) not_run: u64,
    pub(crate) unknown: u64,
}

/// The final state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobState {
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt failed.
    Failed,
    /// It was stopped because the batch ended early.
    Stopped,
    /// It was not started, because a job in its `after` did not succeed.
    Skipped,
    /// It was not started, because the batch ended early.
    NotRun,
    /// It may have run, and is not run again.
    Unknown,
    /// It can never start.
    Refused,
}

impl JobState {
    /// All states, those that need attention first.
    pub(crate) const ALL: [JobState; 7] = [
        JobState::Failed,
        JobState::Unknown,
        JobState::Refused,
        JobState::Stopped,
        JobState::Skipped,
        JobState::NotRun,
        JobState::Succeeded,
    ];

    /// Returns the word that logs, events and reports use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Stopped => "stopped",
            JobState::Skipped => "skipped",
            JobState::NotRun => "not_run",
            JobState::Unknown => "unknown",
            JobState::Refused => "refused",
        }
    }

    /// Returns the word for people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            JobState::Succeeded => "ok",
            JobState::NotRun => "not run",
            other => other.name(),
        }
    }
}

impl From<&Outcome> for JobState {
    fn from(outcome: &Outcome) -> JobState {
        match outcome {
            Outcome::Succeeded => JobState::Succeeded,
            Outcome::Failed(_) | Outcome::Unstored => JobState::Failed,
            Outcome::Stopped => JobState::Stopped,
            Outcome::Skipped { .. } => JobState::Skipped,
            Outcome::NotRun => JobState::NotRun,
            Outcome::Unknown => JobState::Unknown,
            Outcome::Refused(_) => JobState::Refused,
        }
    }
}

/// The number of jobs in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StateCounts([u64; JobState::ALL.len()]);

impl StateCounts {
    pub(crate) fn add(&mut self, state: JobState) {
        if let Some(count) = self.0.get_mut(state as usize) {
            *count += 1;
        }
    }

    pub(crate) fn of(&self, state: JobState) -> u64 {
        self.0.get(state as usize).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}
