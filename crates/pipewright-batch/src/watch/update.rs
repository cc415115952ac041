//! Updates: everything that a report of a running batch can show.

use std::time::SystemTime;

use crate::executor::{AttemptEnd, AttemptKey};
use crate::vocabulary::JobOutcome;

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
    /// A job is over. `reason` is one line, if there is more to say than the word.
    Settled { job: u64, outcome: JobOutcome, reason: Option<&'a str> },
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

/// The number of jobs with each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OutcomeCounts([u64; JobOutcome::ALL.len()]);

impl OutcomeCounts {
    pub(crate) fn add(&mut self, outcome: JobOutcome) {
        if let Some(count) = self.0.get_mut(outcome as usize) {
            *count += 1;
        }
    }

    pub(crate) fn of(&self, outcome: JobOutcome) -> u64 {
        self.0.get(outcome as usize).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}
